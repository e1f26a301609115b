// Package natstest gives tests an embedded NATS server and connections to it, all of
// which end with the test. It is for tests only; programs use the server of natsd.
package natstest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Start runs a server whose store lies in the test's own folder.
func Start(tb testing.TB, opts natsd.Options) *natsd.Server {
	tb.Helper()
	if opts.Dir == "" && !opts.NoJetStream {
		opts.Dir = tb.TempDir()
	}
	s, err := natsd.Start(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Shutdown)
	return s
}

// Connect connects to a server as programs do.
func Connect(tb testing.TB, s *natsd.Server) *nats.Conn {
	tb.Helper()
	nc, err := messages.Dial(s.URL(), messages.DialConfig{Name: tb.Name(), Timeout: 20 * time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// Open initialises a model and opens it, on a connection of its own.
func Open(tb testing.TB, s *natsd.Server, cfg messages.Config) *messages.Control {
	tb.Helper()
	nc := Connect(tb, s)
	ctx := Context(tb, 20*time.Second)
	if err := messages.Init(ctx, nc, cfg); err != nil {
		tb.Fatal(err)
	}
	c, err := messages.Open(ctx, nc, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// Context ends with the test or after timeout: no test waits for ever.
func Context(tb testing.TB, timeout time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	tb.Cleanup(cancel)
	return ctx
}
