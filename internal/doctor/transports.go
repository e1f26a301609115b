package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

// tryTime bounds each trial read.
const tryTime = 5 * time.Second

// trialBytes is what a trial reads.
const trialBytes = 4096

// try reads a page through a pair of transports, which it closes. Memory is unmapped last: a source holds it for as long
// as its last answer is on its way, and only the transport's end tells that it is not.
func try(source, reader rdma.Transport, incarnation string, backing rdma.Backing) error {
	src, err := rdma.Alloc(trialBytes, rdma.AllocOptions{Backing: backing})
	if err != nil {
		return errors.Join(err, source.Close(), reader.Close())
	}
	dst, err := rdma.Alloc(trialBytes, rdma.AllocOptions{})
	if err != nil {
		return errors.Join(err, source.Close(), reader.Close(), src.Close())
	}
	err = trial(source, reader, incarnation, src, dst)
	return errors.Join(err, source.Close(), reader.Close(), dst.Close(), src.Close())
}

func trial(source, reader rdma.Transport, incarnation string, src, dst *rdma.Memory) error {
	copy(src.Bytes(), "drydock")
	reg, err := source.Register(src)
	if err != nil {
		return err
	}
	access, err := source.Access()
	if err != nil {
		return err
	}
	host, err := rdma.HostID()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), tryTime)
	defer cancel()
	peer, err := reader.Connect(ctx, rdma.Remote{Host: host, Incarnation: incarnation, Regions: []rdma.RemoteRegion{reg.Describe()}, Access: access})
	if err != nil {
		return err
	}
	t, err := peer.Read(dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, trialBytes)})
	if err == nil {
		err = t.Wait(ctx)
	}
	if err == nil && !bytes.Equal(src.Bytes(), dst.Bytes()) {
		err = errors.New("the bytes arrived wrong")
	}
	return errors.Join(err, peer.Close())
}

func tryLocal(backing rdma.Backing) error {
	s, err := local.New(local.Config{})
	if err != nil {
		return err
	}
	r, err := local.New(local.Config{Workers: 1})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return try(s, r, s.Incarnation(), backing)
}

func localTransport(*Options) Finding {
	if err := tryLocal(rdma.Memfd); err != nil {
		return finding(Warn, err.Error(), "readers of this host take tcp instead: run both programs as one user, in one pid namespace (Kubernetes: shareProcessNamespace or hostPID)")
	}
	return good("shared memory of another process can be mapped (same user and pid namespace)")
}

// vmRead is only needed for anonymous memory.
func vmRead(o *Options) Finding {
	scope, err := os.ReadFile(filepath.Join(o.Proc, "sys/kernel/yama/ptrace_scope"))
	found := "no ptrace restriction"
	if err == nil {
		found = "ptrace_scope " + strings.TrimSpace(string(scope))
	}
	if err := tryLocal(rdma.Anonymous); err != nil {
		return finding(None, found+": "+err.Error(), "not needed: publishers serve shared memory. For anonymous memory of others: capability SYS_PTRACE, or ptrace_scope 0")
	}
	if err == nil && strings.TrimSpace(string(scope)) != "0" {
		return finding(None, found, "allowed for children only; not needed: publishers serve shared memory")
	}
	return good("%s", found)
}

func tcpTransport(o *Options) Finding {
	s, err := tcp.New(tcp.Config{Listen: o.Listen})
	if err != nil {
		return finding(Fail, err.Error(), "choose a free port, or 0 for any; and an address of this host")
	}
	access, err := s.Access()
	if err != nil {
		return finding(Fail, err.Error(), "")
	}
	r, err := tcp.New(tcp.Config{Conns: 1})
	if err == nil {
		err = try(s, r, s.Incarnation(), rdma.Memfd)
	} else {
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		return finding(Fail, err.Error(), "let the host connect to itself: check firewall rules and the addresses that are advertised")
	}
	return good("serves and reads on %s", access.Agent)
}

func rdmaDevices(o *Options) Finding {
	dirs, err := filepath.Glob(filepath.Join(o.Sys, "class/infiniband/*"))
	if err != nil || len(dirs) == 0 {
		return finding(None, "none", "nixl then moves bytes over shared memory and tcp")
	}
	var out []string
	for _, d := range dirs {
		state, err := os.ReadFile(filepath.Join(d, "ports/1/state"))
		if err != nil {
			state = []byte("unknown")
		}
		out = append(out, fmt.Sprintf("%s (%s)", filepath.Base(d), strings.TrimSpace(string(state))))
	}
	return good("%s", strings.Join(out, ", "))
}

// nixlLibrary opens, lists and tests the library.
func nixlLibrary(o *Options) Finding {
	l, err := nixl.Open(o.Nixl, o.NixlRoots...)
	if err != nil {
		return finding(None, err.Error(), "scripts/fetch-nixl.sh fetches it; or name libnixl_capi.so by DRYDOCK_NIXL_LIB. tcp and local work without it")
	}
	plugins, err := l.Plugins()
	if err != nil {
		return finding(Warn, fmt.Sprintf("%s: %v", l.Path, err), "set NIXL_PLUGIN_DIR to the folder of libplugin_UCX.so")
	}
	if err := l.SelfTest(o.Nixl); err != nil {
		return finding(Warn, fmt.Sprintf("%s: %v", l.Path, err), "auto takes another transport; UCX_LOG_LEVEL=info tells what UCX finds")
	}
	return good("%s moves bytes; plug-ins: %s", l.Path, strings.Join(plugins, ", "))
}
