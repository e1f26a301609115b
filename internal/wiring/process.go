package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/drydock-rl/drydock/internal/adminhttp"
	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// Base is the flags of what every long-running program has around it.
type Base struct {
	NATS   `group:"Message server:"`
	Traces `group:"Program:"`

	Model string `help:"Model name, the same for publishers and receivers." required:"" placeholder:"NAME"`
	Admin string `help:"Address of /metrics, /healthz and /readyz; none by default." placeholder:"ADDR" group:"Program:"`
	Pprof string `help:"Address of profiles under /debug/pprof/; none by default. Needs --admin." placeholder:"ADDR" group:"Program:"`
}

// Process is a program's surroundings, opened. Close ends them in reverse order, after whatever was given to Later.
type Process struct {
	Log       *slog.Logger
	Telemetry *tracing.Telemetry
	Details   trace.TracerProvider // for spans below the process's own
	Metrics   *tracing.Metrics
	Control   *messages.Control
	Admin     string // URL of the admin server, "" where none runs

	waits atomic.Pointer[string]
	undo  []func() error
}

// Waits says what the process waits for before it can do its work, "" for nothing: /readyz tells so until then.
func (p *Process) Waits(what string) { p.waits.Store(&what) }

// atWork is the readiness check of what Waits says.
func (p *Process) atWork(context.Context) error {
	if what := p.waits.Load(); what != nil && *what != "" {
		return fmt.Errorf("waiting for %s", *what)
	}
	return nil
}

// Start opens telemetry, the message server, the model's control plane and the admin server. Of many equal participants
// only some show the details of their spans: rank says which this is of world.
func (b *Base) Start(ctx context.Context, service, name string, rank, world int, log *slog.Logger) (*Process, error) {
	p := &Process{Log: log}
	if err := p.start(ctx, b, service, name, rank, world); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Process) start(ctx context.Context, b *Base, service, name string, rank, world int) error {
	telemetry, end, err := Telemetry(ctx, b.Traces, service, name, p.Log)
	if err != nil {
		return err
	}
	p.Telemetry = telemetry
	p.Later(func() error { end(); return nil })
	if p.Metrics, err = tracing.NewMetrics(telemetry.MeterProvider); err != nil {
		return err
	}
	nc, err := b.Connect(ctx, name, p.Log)
	if err != nil {
		return err
	}
	p.Later(func() error { nc.Close(); return nil })
	p.Details = tracing.ForRank(telemetry.TracerProvider, rank, world)
	p.Control, err = messages.Open(ctx, nc, messages.Config{Model: b.Model, Logger: p.Log, Tracer: p.Details})
	if err != nil {
		return cli.WithCode(cli.ExitUnavailable, explainOpen(b.Model, err))
	}
	p.Later(p.Control.Close)
	return p.admin(b, nc)
}

// explainOpen says what to do about a model that was never made.
func explainOpen(model string, err error) error {
	if errors.Is(err, messages.ErrNoStream) && !errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w (refitctl init --model %s makes the model on that server)", err, model)
	}
	return err
}

// admin starts the HTTP server, where one is asked for.
func (p *Process) admin(b *Base, nc *nats.Conn) error {
	if b.Admin == "" {
		return nil
	}
	server, err := adminhttp.Start(adminhttp.Config{
		Addr: b.Admin, PprofAddr: b.Pprof, Metrics: p.Telemetry.Prometheus, Logger: p.Log,
		Ready: map[string]adminhttp.Check{"nats": func(context.Context) error {
			if s := nc.Status(); s != nats.CONNECTED {
				return fmt.Errorf("the connection to NATS is %s", s)
			}
			return nil
		}, "work": p.atWork},
	})
	if err != nil {
		return cli.WithCode(cli.ExitCapacity, err)
	}
	p.Admin = server.URL()
	p.Log.Info("admin server", "url", p.Admin)
	p.Later(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), adminGrace)
		defer cancel()
		return server.Close(ctx)
	})
	return nil
}

// adminGrace is how long requests in flight may take when the program ends.
const adminGrace = 2 * time.Second

// Later has something undone by Close.
func (p *Process) Later(undo func() error) { p.undo = append(p.undo, undo) }

// Close undoes everything, the last first. It may be repeated.
func (p *Process) Close() error {
	undo := p.undo
	p.undo = nil
	var errs []error
	for _, f := range slices.Backward(undo) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
