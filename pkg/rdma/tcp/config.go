package tcp

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Name is the transport's name.
const Name = "tcp"

// Config says how to serve and how to read. The zero value reads and serves nothing.
type Config struct {
	Listen      string   // address to serve on, such as "127.0.0.1:0" or ":7400"; "" serves nothing
	Advertise   []string // addresses that readers try in order; default: the listener's, of all interfaces if unspecific
	Incarnation string   // this life of the endpoint; default rdma.NewIncarnation()

	// Secure serves over TLS with a certificate made at start, whose hash travels in Access and is what readers check.
	Secure bool
	// ServerTLS and ClientTLS replace that by certificates of an own authority. Set on both sides, or on neither.
	ServerTLS, ClientTLS *tls.Config

	Conns             int           // connections of a reader to one peer; default 4
	MaxConns          int           // of a server; default 4096
	MaxConnsPerClient int           // of a server, from one address; default 64
	Stall             time.Duration // a wait without any progress ends the connection; default 10 s
	Handshake         time.Duration // for a connection to be accepted and proven; default 5 s
	Idle              time.Duration // a server hangs up on readers that ask for nothing so long, a reader after half of it; default 10 min
	Ceiling           int64         // bytes/s that the fabric can't exceed; faster reads are false completions; 0: unknown

	Logger *slog.Logger // default: none
}

func orDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func (c *Config) validate() error {
	orDefault(&c.Incarnation, rdma.NewIncarnation())
	orDefault(&c.Conns, 4)
	orDefault(&c.MaxConns, 4096)
	orDefault(&c.MaxConnsPerClient, 64)
	orDefault(&c.Stall, 10*time.Second)
	orDefault(&c.Handshake, 5*time.Second)
	orDefault(&c.Idle, 10*time.Minute)
	orDefault(&c.Logger, slog.New(slog.DiscardHandler))
	switch {
	case len(c.Incarnation) > maxName:
		return fmt.Errorf("incarnation of %d bytes, at most %d", len(c.Incarnation), maxName)
	case c.Conns < 0 || c.Conns > 256 || c.MaxConns < 0 || c.MaxConnsPerClient < 0:
		return fmt.Errorf("connections: %d of a reader, %d of a server, %d of one client", c.Conns, c.MaxConns, c.MaxConnsPerClient)
	case c.Stall < 0 || c.Handshake < 0 || c.Idle < 0 || c.Ceiling < 0:
		return fmt.Errorf("negative limit: stall %v, handshake %v, idle %v, ceiling %d", c.Stall, c.Handshake, c.Idle, c.Ceiling)
	case c.Secure && c.ServerTLS != nil:
		return fmt.Errorf("both a certificate made at start and one configured")
	case len(c.Advertise) > maxAddresses:
		return fmt.Errorf("%d addresses, at most %d", len(c.Advertise), maxAddresses)
	}
	return nil
}
