package wiring

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

// Transports says how bytes move.
type Transports struct {
	Transport string `help:"How bytes move: ${enum}. auto takes the first of them that works and says which." default:"auto" enum:"auto,tcp,local"`
	TCPSecure bool   `help:"Serve tcp over TLS, with a certificate that the endpoint's description pins."`
}

// Listen says where a publisher serves.
type Listen struct {
	Listen    string   `help:"Address to serve tcp reads on; port 0 takes a free one." default:":0" placeholder:"ADDR"`
	Advertise []string `help:"Addresses that readers try, in order. Default: the listener's, of all interfaces where it listens on all." placeholder:"ADDR"`
}

// Names lists the transports in the order in which auto prefers them.
var Names = []string{local.Name, tcp.Name}

// Open makes the transports that a program uses, in order of preference. The zero listen serves nothing.
func (t *Transports) Open(listen Listen, incarnation string, log *slog.Logger) ([]rdma.Transport, error) {
	var opened []rdma.Transport
	for _, name := range Names {
		if t.Transport != "auto" && t.Transport != name {
			continue
		}
		made, err := t.open(name, listen, incarnation, log)
		if err != nil {
			return nil, errors.Join(cli.WithCode(cli.ExitCapacity, fmt.Errorf("open transport %s: %w", name, err)), Close(opened))
		}
		opened = append(opened, made)
	}
	if len(opened) == 0 {
		return nil, cli.WithCode(cli.ExitUsage, fmt.Errorf("transport %q is none of %s", t.Transport, strings.Join(Names, ", ")))
	}
	return opened, nil
}

func (t *Transports) open(name string, listen Listen, incarnation string, log *slog.Logger) (rdma.Transport, error) {
	if name == local.Name {
		return local.New(local.Config{Incarnation: incarnation, Logger: log})
	}
	return tcp.New(tcp.Config{
		Listen: listen.Listen, Advertise: listen.Advertise, Incarnation: incarnation, Secure: t.TCPSecure, Logger: log,
	})
}

// Close closes transports, the last opened first.
func Close(ts []rdma.Transport) error {
	var errs []error
	for _, t := range slices.Backward(ts) {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}
