package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/internal/proof"
	"github.com/drydock-rl/drydock/internal/tracesink"
	"github.com/drydock-rl/drydock/internal/wiring"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// run is one demo under way.
type run struct {
	o     Options
	out   io.Writer // the report
	say   *voice    // progress
	log   *slog.Logger
	model string

	files    *workspace
	url      string
	control  *messages.Control
	sink     *tracesink.Sink
	children *children
	records  *records

	cleanup []func() error
}

// Run runs the demo. It returns nil only if every version was applied by every receiver, every byte was proven, and
// every process left cleanly.
func Run(ctx context.Context, o Options, out io.Writer, log *slog.Logger) error {
	if err := o.validate(); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	r := &run{o: o, out: out, log: log, say: newVoice(o.progress(out)), model: "demo-" + rdma.NewIncarnation()[:8]}
	bounded, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("the demo was to take no longer than %v (--timeout)", o.Timeout))
	defer cancel()
	err := r.run(bounded)
	if err == nil && o.Keep {
		err = r.keep(ctx) // which is not bounded by the demo's own time
	}
	return errors.Join(err, r.close())
}

// later has something undone at the end, in reverse order.
func (r *run) later(f func() error) { r.cleanup = append(r.cleanup, f) }

func (r *run) close() error {
	var errs []error
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		errs = append(errs, r.cleanup[i]())
	}
	return errors.Join(errs...)
}

func (r *run) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.prepare, r.serve, r.launch} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	var results []*result
	for v := uint64(1); v <= uint64(r.o.Versions); v++ {
		res, err := r.version(ctx, v)
		if err != nil {
			return err
		}
		results = append(results, res)
	}
	if err := r.traces(ctx, results); err != nil {
		return err
	}
	if !r.o.Keep {
		if err := r.children.stop(); err != nil {
			return err
		}
	}
	return r.report(results)
}

// keep has everything run on until the context ends, and says how to look around.
func (r *run) keep(ctx context.Context) error {
	r.say.lookAround(r)
	<-ctx.Done()
	r.say.leftBehind(r)
	return r.children.stop()
}

// prepare makes the files.
func (r *run) prepare(ctx context.Context) (err error) {
	if r.files, err = newWorkspace(ctx, r.o); err != nil {
		return err
	}
	r.later(func() error {
		if r.o.Keep {
			return r.files.close()
		}
		return r.files.remove()
	})
	r.say.plan(r)
	return nil
}

// serve starts what the processes talk to, and the demo's own part in it.
func (r *run) serve(ctx context.Context) (err error) {
	if r.sink, err = tracesink.Start(tracesink.Config{Forward: r.o.OTLP, Logger: r.log}); err != nil {
		return cli.WithCode(cli.ExitCapacity, fmt.Errorf("start the trace collector: %w", err))
	}
	r.later(r.sink.Close)
	if r.url = r.o.NATS; r.url == "" {
		server, err := natsd.Start(natsd.Options{Dir: filepath.Join(r.files.dir, "nats")})
		if err != nil {
			return cli.WithCode(cli.ExitCapacity, fmt.Errorf("start the embedded NATS server: %w", err))
		}
		r.later(func() error { server.Shutdown(); return nil })
		r.url = server.URL()
	}
	nc, err := (&wiring.NATS{NATS: r.url}).Connect(ctx, "refitctl demo", r.log)
	if err != nil {
		return err
	}
	r.later(func() error { nc.Close(); return nil })
	return r.open(ctx, nc)
}

// open creates the model's stream and buckets; on somebody else's server they are removed at the end.
func (r *run) open(ctx context.Context, nc *nats.Conn) (err error) {
	cfg := messages.Config{Model: r.model, Memory: true, MaxBytes: 256 << 20, Logger: r.log}
	if err := messages.Init(ctx, nc, cfg); err != nil {
		return cli.WithCode(cli.ExitUnavailable, err)
	}
	if r.o.NATS != "" {
		r.later(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return messages.Remove(ctx, nc, cfg)
		})
	}
	if r.control, err = messages.Open(ctx, nc, cfg); err != nil {
		return cli.WithCode(cli.ExitUnavailable, err)
	}
	r.later(r.control.Close)
	r.say.server(r)
	return nil
}

// launch starts receivers and publishers.
func (r *run) launch(context.Context) (err error) {
	env := append(r.sink.Environ(), tracing.EnvStdout+"=1")
	if r.children, err = newChildren(r.o.BinDir, env); err != nil {
		return err
	}
	r.later(r.children.stop)
	r.records = newRecords(r.say.record)
	for i := range r.o.Receivers {
		name := receiverName(i)
		err := r.children.start("receiver", name, r.files.log(name), r.receiverArgs(i), func(text string) { r.records.line(i, text) })
		if err != nil {
			return err
		}
	}
	for i := range r.o.Trainers {
		name := publisherName(i)
		if err := r.children.start("publisher", name, r.files.log(name), r.publisherArgs(i), func(string) {}); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) receiverArgs(i int) []string {
	return []string{
		"--nats", r.url, "--model", r.model, "--name", receiverName(i), "--capture", r.files.captureFile,
		"--tp", strconv.Itoa(r.o.Receivers), "--ranks", strconv.Itoa(i), "--arena-dir", r.files.arenas, "--transport", r.o.Transport,
	}
}

func (r *run) publisherArgs(i int) []string {
	return []string{
		"--nats", r.url, "--model", r.model, "--job", r.model, "--rank", strconv.Itoa(i), "--world", strconv.Itoa(r.o.Trainers),
		"--checkpoint", r.files.checkpoint, "--layout", r.o.Layout, "--transport", r.o.Transport, "--listen", "127.0.0.1:0",
		"--seed", strconv.FormatUint(r.o.Seed, 10), "--versions", strconv.Itoa(r.o.Versions), "--interval", "0s",
		"--await-receivers", strconv.Itoa(r.o.Receivers + 1), "--await-timeout", r.o.Timeout.String(),
	}
}

// version waits until all receivers have applied a version, proves their arenas, and says so to the publishers.
func (r *run) version(ctx context.Context, v uint64) (*result, error) {
	all, err := r.records.wait(ctx, v, r.o.Receivers, r.children.failed)
	if err != nil {
		return nil, err
	}
	res := &result{Version: v, Records: all}
	start := time.Now()
	for rank := range r.o.Receivers {
		report, err := r.prove(ctx, rank, v)
		if err != nil {
			return nil, cli.WithCode(cli.ExitMismatch, fmt.Errorf("prove version %d of %s: %w", v, receiverName(rank), err))
		}
		res.Proofs = append(res.Proofs, report)
	}
	r.say.proven(res, time.Since(start))
	key := messages.Key{Run: all[0].Drydock.Run, Version: v}
	host, _ := os.Hostname()
	return res, r.control.PutStatus(ctx, "demo-proof", messages.Status{
		Role: messages.RoleReceiver, Name: "demo-proof", Host: host, Serving: key, Updated: time.Now(),
	})
}

// prove recomputes the arena of one rank from the checkpoint files.
func (r *run) prove(ctx context.Context, rank int, v uint64) (proof.Report, error) {
	c, err := r.files.capture.Case(r.o.Receivers, rank, false)
	if err != nil {
		return proof.Report{}, err
	}
	return proof.Verify(ctx, proof.Input{
		Arena: r.files.arena(rank), Checkpoint: r.files.source, Capture: r.files.capture, Case: c, Seed: r.o.Seed, Version: v,
	})
}

// traceWait is how long spans may take to arrive after a version is applied.
const traceWait = 5 * time.Second

// traces collects each version's trace: the publications of all ranks and the cycles of all receivers.
func (r *run) traces(ctx context.Context, results []*result) error {
	ctx, cancel := context.WithTimeout(ctx, traceWait)
	defer cancel()
	for _, res := range results {
		id, err := tracesink.ParseTraceID(res.Records[0].Drydock.TraceID)
		if err != nil {
			return fmt.Errorf("find the trace of version %d: %w", res.Version, err)
		}
		trace, err := r.sink.Wait(ctx, id, func(t tracesink.Trace) bool {
			n := map[string]int{}
			for i := range t.Spans {
				n[t.Spans[i].Name]++
			}
			return n["publish"] >= r.o.Trainers && n["refit"] >= r.o.Receivers
		})
		if err != nil {
			return fmt.Errorf("collect the trace of version %d: %w", res.Version, err)
		}
		res.Trace = trace
	}
	return nil
}
