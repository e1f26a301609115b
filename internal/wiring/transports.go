package wiring

import (
	"errors"
	"fmt"
	"net"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

// Transports says how bytes move.
type Transports struct {
	Transport string `help:"How bytes move: ${enum}. auto takes the first of local, nixl and tcp that works, for each trainer rank, and says which and why." default:"auto" enum:"auto,local,nixl,tcp"`
	TCPSecure bool   `help:"Serve tcp over TLS, with a certificate that the endpoint's description pins."`
	NixlLib   string `help:"The NIXL library, libnixl_capi.so. Default: the loader's path, then where the Python wheel puts it." placeholder:"FILE"`
}

// Listen says where a publisher serves.
type Listen struct {
	Listen    string   `help:"Address to serve tcp reads on; port 0 takes a free one." default:":0" placeholder:"ADDR"`
	Advertise []string `help:"Addresses that readers try, in order. Default: the listener's, of all interfaces where it listens on all." placeholder:"ADDR"`
}

// Names lists the transports in the order in which auto prefers them.
var Names = []string{local.Name, nixl.Name, tcp.Name}

// Open makes the transports that a program uses, in order of preference; they are closed with the process. The zero
// listen serves nothing. A transport that is not insisted on and can't be used here is left out, and that is logged.
func (t *Transports) Open(p *Process, listen Listen, incarnation string) ([]rdma.Transport, error) {
	var opened []rdma.Transport
	for _, name := range Names {
		if t.Transport != "auto" && t.Transport != name {
			continue
		}
		made, err := t.open(p, name, listen, incarnation)
		switch {
		case err == nil:
			opened = append(opened, made)
			p.Later(made.Close)
		case t.Transport == "auto" && errors.Is(err, rdma.ErrUnavailable):
			p.Log.Info("transport not available here", "transport", name, "reason", err)
		case errors.Is(err, rdma.ErrUnavailable):
			return nil, cli.WithCode(cli.ExitUnavailable, fmt.Errorf("open transport %s: %w", name, err))
		default:
			return nil, cli.WithCode(cli.ExitCapacity, fmt.Errorf("open transport %s: %w", name, err))
		}
	}
	return opened, nil
}

func (t *Transports) open(p *Process, name string, listen Listen, incarnation string) (rdma.Transport, error) {
	switch name {
	case local.Name:
		return local.New(local.Config{Incarnation: incarnation, Logger: p.Log})
	case nixl.Name:
		return t.openNIXL(p, listen, incarnation)
	}
	made, err := tcp.New(tcp.Config{
		Listen: listen.Listen, Advertise: listen.Advertise, Incarnation: incarnation, Secure: t.TCPSecure, Logger: p.Log,
	})
	if err != nil && listen.Listen != "" {
		return nil, fmt.Errorf("%w (--listen names another address; port 0 takes a free one)", err)
	}
	return made, err
}

// openNIXL opens the library, and has what it writes to standard error go to the log from then on.
func (t *Transports) openNIXL(p *Process, listen Listen, incarnation string) (rdma.Transport, error) {
	cfg := nixl.Config{Library: t.NixlLib, Incarnation: incarnation, Secure: t.TCPSecure, Logger: p.Log}
	if listen.Listen != "" {
		cfg.Listen, cfg.Advertise = portless(listen.Listen), listen.Advertise
	} else { // of the programs only the receiver reads, and its main knows the argument
		cfg.Probe = []string{"/proc/self/exe", nixl.ProbeArg}
	}
	lib, err := nixl.Open(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w (make nixl fetches the library; --nixl-lib names it)", err)
	}
	restore, err := nixl.CaptureNoise(p.Log)
	if err != nil {
		return nil, err
	}
	p.Later(restore)
	return lib.New(cfg)
}

// portless is the same address with a free port: the configured one belongs to tcp.
func portless(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // tcp says what is wrong with it
	}
	return net.JoinHostPort(host, "0")
}
