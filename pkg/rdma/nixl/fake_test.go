package nixl

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/nixlsys"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// fakeLibrary builds the stand-in and opens it.
func fakePath(t testing.TB, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler for the stand-in library")
	}
	path := filepath.Join(t.TempDir(), libraryName)
	args := append(flags, "-shared", "-fPIC", "-O1", "-o", path, "testdata/fakenixl.c", "-lpthread")
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func fakeLibrary(t testing.TB) *Library {
	t.Helper()
	l, err := Open(Config{Library: fakePath(t)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func fake(mode string) map[string]string { return map[string]string{"fake": mode} }

func TestConformanceOfTheStandIn(t *testing.T) {
	t.Parallel()
	l := fakeLibrary(t)
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			rdmatest.Conformance(t, func(t testing.TB) rdmatest.Pair { return newPair(t, l, Config{Params: fake(mode)}) })
		})
	}
}

// fakeRig connects a reader whose reads end as the mode says.
func fakeRig(t *testing.T, l *Library, mode string, stall time.Duration) (*Transport, rdma.Peer, *rdma.Memory) {
	t.Helper()
	source := open(t, l, Config{Listen: "127.0.0.1:0", Agents: 1})
	// The broken modes couldn't pass the self-test, which the source's transport has done for the library.
	reader := open(t, l, Config{Params: fake(mode), Agents: 1, Stall: stall})
	src := rdmatest.Alloc(t, 1<<16, 1)
	reg := rdmatest.Register(t, source, src)
	t.Cleanup(func() { _ = source.Close() })
	pair := rdmatest.Pair{Source: source, Incarnation: source.Incarnation()}
	peer := rdmatest.Connect(t, reader, rdmatest.RemoteOf(t, pair, reg))
	dst, err := rdma.Alloc(1<<16, rdma.AllocOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return reader, peer, dst
}

var half = []rdma.Segment{{Run: 1024, N: [3]int64{1, 1, 16}, SrcStride: [3]int64{0, 0, 4096}, DstStride: [3]int64{0, 0, 2048}}}

func TestFailureInsideTheLibraryEndsThePeer(t *testing.T) {
	t.Parallel()
	_, peer, dst := fakeRig(t, fakeLibrary(t), "fail", 5*time.Second)
	for range 2 {
		if err := rdmatest.Read(peer, dst, half); !errors.Is(err, rdma.ErrReset) {
			t.Fatalf("read: %v", err)
		}
	}
	rdmatest.CloseMemory(t, dst)
}

// A transfer that never ends: the waiter hears of it, the destination stays held for ever, later reads fail at once,
// and closing neither hangs nor frees what may still be written.
func TestTransferThatNeverEndsIsQuarantined(t *testing.T) {
	t.Parallel()
	reader, peer, dst := fakeRig(t, fakeLibrary(t), "stuck", 50*time.Millisecond)
	err := rdmatest.Read(peer, dst, half)
	if !errors.Is(err, rdma.ErrQuarantined) {
		t.Fatalf("read: %v", err)
	}
	if n, nbytes := reader.Quarantined(); n != 1 || nbytes != 16*1024 {
		t.Errorf("%d transfers with %d bytes in quarantine", n, nbytes)
	}
	if err := rdmatest.Read(peer, dst, half); !errors.Is(err, rdma.ErrTimeout) {
		t.Errorf("next read: %v", err)
	}
	if err := errors.Join(peer.Close(), reader.Close()); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := dst.Close(); !errors.Is(err, rdma.ErrBusy) {
		t.Errorf("close of quarantined memory: %v", err)
	}
}

func TestOpenTellsWhatIsWrongWithALibrary(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path string
		want []string
	}{
		"missing file":      {"/nowhere/libnixl_capi.so", []string{"/nowhere/libnixl_capi.so"}},
		"another library":   {"libc.so.6", []string{"lacks 31 functions", "nixl_capi_create_backend"}},
		"missing functions": {fakePath(t, "-DMISSING"), []string{"lacks 2 functions: nixl_capi_destroy_xfer_req, nixl_capi_release_xfer_req"}},
		"stub":              {fakePath(t, "-DSTUB"), []string{nixlsys.ErrStub.Error()}},
	} {
		_, err := Open(Config{Library: c.path})
		if !errors.Is(err, rdma.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %q", name, err, w)
			}
		}
	}
}

func TestPluginThatIsMissingMakesTheTransportUnavailable(t *testing.T) {
	t.Parallel()
	l := fakeLibrary(t)
	if tr, err := l.New(Config{Plugin: "MISSING"}); !errors.Is(err, rdma.ErrUnavailable) {
		t.Fatalf("%v, %v", tr, err)
	}
	if names, err := l.Plugins(); err != nil || len(names) != 1 || names[0] != "FAKE" {
		t.Fatalf("plug-ins %v, %v", names, err)
	}
}

func TestNamesWithNULAreRefusedBeforeTheLibrarySeesThem(t *testing.T) {
	t.Parallel()
	l := fakeLibrary(t)
	if _, err := l.sys.NewAgent("a\x00b", servingAgent); !errors.Is(err, nixlsys.ErrNUL) {
		t.Errorf("agent: %v", err)
	}
	if _, err := newAgent(l, &Config{Plugin: "U\x00X"}, servingAgent, "x"); !errors.Is(err, nixlsys.ErrNUL) {
		t.Errorf("plug-in: %v", err)
	}
}

// Memory that wasn't registered is registered for the read, and let go afterwards.
func TestUnregisteredDestinationIsHeldForTheReadOnly(t *testing.T) {
	t.Parallel()
	reader, peer, dst := fakeRig(t, fakeLibrary(t), "async", 5*time.Second)
	if err := rdmatest.Read(peer, dst, half); err != nil {
		t.Fatal(err)
	}
	for _, r := range reader.readers {
		r.mu.Lock()
		n := len(r.regs)
		r.mu.Unlock()
		if n != 0 {
			t.Errorf("%d registrations are left", n)
		}
	}
	rdmatest.CloseMemory(t, dst)
}

func TestConnectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := fakeLibrary(t)
	reader := open(t, l, Config{Agents: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	source := open(t, l, Config{Listen: "127.0.0.1:0", Agents: 1})
	r := rdmatest.RemoteOf(t, rdmatest.Pair{Source: source, Incarnation: source.Incarnation()})
	if p, err := reader.Connect(ctx, r); rdma.KindOf(err) == 0 {
		t.Fatalf("%v, %v", p, err)
	}
}

func FuzzDecodeAccess(f *testing.F) {
	a := access{control: []byte("c"), name: "agent", regions: []extent{{1, 2}}, md: []byte("md")}
	f.Add(a.encode())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAccess(b)
		if err == nil && !bytes.Equal(a.encode(), b) {
			t.Fatalf("%x decodes to %+v, which encodes otherwise", b, a)
		}
	})
}
