package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// stageRanks is how many trainers serve the benchmark's refits.
const stageRanks = 2

// benchStages refits one receiver by each transport and shows where the time of the last, warm, round went.
func benchStages(ctx context.Context, out io.Writer, o Options) error {
	records := map[string]*tracing.Record{}
	names := []string{local.Name, tcp.Name}
	for _, name := range names {
		rec, err := refitOnce(ctx, o, name)
		if err != nil {
			return fmt.Errorf("measure a refit by %s: %w", name, err)
		}
		records[name] = rec
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nA refit of %d MiB from %d trainers, verified, plan known\n", o.Nbytes>>20, stageRanks)
	fmt.Fprintf(w, "  \t%s\t%s\n", names[0], names[1])
	line := func(name string, value func(*tracing.Record) float64) {
		fmt.Fprintf(w, "  %s\t%.2f ms\t%.2f ms\n", name, value(records[names[0]]), value(records[names[1]]))
	}
	for _, s := range tracing.Stages() {
		line(s.String(), func(r *tracing.Record) float64 { return float64(r.Stages.Get(s).DurationMs) })
	}
	line("end to end", func(r *tracing.Record) float64 { return float64(r.E2EMs) })
	return w.Flush()
}

// refitOnce publishes and applies a few versions and returns the record of the fastest.
func refitOnce(ctx context.Context, o Options, transport string) (best *tracing.Record, err error) {
	b := &refitBench{transport: transport, nbytes: o.Nbytes / stageRanks}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx, o.Dir); err != nil {
		return nil, err
	}
	for v := range uint64(o.Rounds + 1) {
		rec, err := b.refit(ctx, v+1)
		if err != nil {
			return nil, err
		}
		if best == nil || v > 0 && rec.E2EMs < best.E2EMs || best.ColdWarm == "cold" {
			best = rec
		}
	}
	return best, nil
}

// refitBench is a server, trainers and a receiver in this process.
type refitBench struct {
	transport  string
	nbytes     int64         // of one trainer
	unverified bool          // publish no digests
	busy       time.Duration // processor time of the last refit, the trainers' serving included
	publishers []*refit.Publisher
	receiver   *refit.Receiver
	control    *messages.Control
	closers    []func() error
}

func (b *refitBench) close() error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i]())
	}
	return errors.Join(errs...)
}

func (b *refitBench) open(ctx context.Context, dir string) error {
	root, err := os.MkdirTemp(dir, "drydock-bench-")
	if err != nil {
		return err
	}
	b.closers = append(b.closers, func() error { return os.RemoveAll(root) })
	server, err := natsd.Start(natsd.Options{Dir: filepath.Join(root, "nats")})
	if err != nil {
		return err
	}
	b.closers = append(b.closers, func() error { server.Shutdown(); return nil })
	nc, err := messages.Dial(server.URL(), messages.DialConfig{})
	if err != nil {
		return err
	}
	b.closers = append(b.closers, func() error { nc.Close(); return nil })
	cfg := messages.Config{Model: "bench", Memory: true}
	if err := messages.Init(ctx, nc, cfg); err != nil {
		return err
	}
	if b.control, err = messages.Open(ctx, nc, cfg); err != nil {
		return err
	}
	b.closers = append(b.closers, b.control.Close)
	for rank := range stageRanks {
		if err := b.addPublisher(ctx, rank); err != nil {
			return err
		}
	}
	return b.addReceiver(filepath.Join(root, "arenas"))
}

func (b *refitBench) newTransport(incarnation string, serve bool) (rdma.Transport, error) {
	if b.transport == local.Name {
		return local.New(local.Config{Incarnation: incarnation})
	}
	cfg := tcp.Config{Incarnation: incarnation}
	if serve {
		cfg.Listen = "127.0.0.1:0"
	}
	return tcp.New(cfg)
}

// grid is of tiles of rows, as trainers have them for what tensor parallelism cuts in rows.
func (b *refitBench) grid(shape []int64) []int64 {
	if b.unverified {
		return nil
	}
	return tiles.ChooseGrid(shape, 2, tiles.Options{Rows: true})
}

// columns is the width of the benchmark's only tensor, in elements.
const columns = 4096

func (b *refitBench) addPublisher(ctx context.Context, rank int) error {
	rows := b.nbytes / 2 / columns
	shape := []int64{stageRanks * rows, columns}
	l := &messages.Layout{
		Rank: rank, Regions: []int64{b.nbytes}, Names: []string{"w"}, DTypes: []messages.DType{messages.BF16}, ShapeEnd: []uint32{2},
		Shapes: shape, Grid: b.grid(shape), Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0},
		Box: []int64{int64(rank) * rows, int64(rank+1) * rows, 0, columns},
	}
	incarnation := rdma.NewIncarnation()
	t, err := b.newTransport(incarnation, true)
	if err != nil {
		return err
	}
	slot, err := rdma.Alloc(b.nbytes, rdma.AllocOptions{})
	if err != nil {
		return errors.Join(err, t.Close())
	}
	b.closers = append(b.closers, slot.Close, t.Close) // the slot last: a last answer may still be on its way
	p, err := refit.NewPublisher(ctx, refit.PublisherConfig{
		Model: "bench", Rank: rank, World: stageRanks, Job: "bench", Incarnation: incarnation, Control: b.control,
		Transports: []rdma.Transport{t}, Slots: []*rdma.Memory{slot}, Layout: l,
	})
	if err != nil {
		return err
	}
	b.publishers = append(b.publishers, p)
	b.closers = append(b.closers, p.Close)
	return nil
}

func (b *refitBench) addReceiver(root string) (err error) {
	t, err := b.newTransport(rdma.NewIncarnation(), false)
	if err != nil {
		return err
	}
	shape := []int64{stageRanks * b.nbytes / 2 / columns, columns}
	b.closers = append(b.closers, t.Close)
	b.receiver, err = refit.NewReceiver(refit.ReceiverConfig{
		Name: "bench", Model: "bench", Control: b.control, Transports: []rdma.Transport{t}, ArenaRoot: root, ReadAll: true, // what changes is a byte
		Dests: []plan.Dest{{
			Params: []plan.Param{{Name: "w", DType: plan.BF16, Shape: shape}},
			Copies: []plan.Copy{{Source: "w", Shape: shape, Stride: []int64{columns, 1}}},
		}},
	})
	if err == nil {
		b.closers = append(b.closers, b.receiver.Close)
	}
	return err
}

// processorTime is what this process has used of all cores, by itself and in the kernel.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// refit publishes one version and applies it, and returns its record.
func (b *refitBench) refit(ctx context.Context, version uint64) (*tracing.Record, error) {
	var wg sync.WaitGroup
	errs := make([]error, len(b.publishers))
	for i, p := range b.publishers {
		wg.Go(func() {
			mem, err := p.Memory(ctx, version)
			if err == nil {
				mem.Bytes()[0] = byte(version)
				_, err = p.Publish(ctx, version)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	key := b.publishers[0].Key(version)
	ctx, cycle := tracing.Start(ctx, tracing.CycleOptions{Model: "bench", Run: key.Run, Version: version, Getenv: func(string) string { return "" }})
	before := processorTime()
	staged, err := b.receiver.Stage(ctx, key)
	if err == nil {
		err = b.receiver.Apply(ctx, staged)
	}
	if err != nil {
		cycle.Finish(tracing.OutcomeFailed, err)
		return nil, err
	}
	b.busy = processorTime() - before
	return cycle.Finish(tracing.OutcomeApplied, nil), nil
}
