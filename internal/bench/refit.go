package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// RefitOptions say how a refit is measured. Zero values are the defaults.
type RefitOptions struct {
	Nbytes int64  // of the model; default 1 GiB. Arenas take twice as much of Dir, trainers once in memory
	Rounds int    // refits of each kind; default 5
	Turns  int    // how often all kinds are measured anew, one after the other; default 3
	Dir    string // of a file system for arenas; default /dev/shm
}

func (o *RefitOptions) setDefaults() {
	if o.Nbytes == 0 {
		o.Nbytes = 1 << 30
	}
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Turns == 0 {
		o.Turns = 3
	}
	if o.Dir == "" {
		o.Dir = "/dev/shm"
	}
}

// kind is one way to refit, and the records of its warm rounds.
type kind struct {
	transport  string
	unverified bool
	records    []*tracing.Record
	busy       []float64 // processor time of each, ms
}

func (k *kind) title() string {
	if k.unverified {
		return k.transport + ", no digests"
	}
	return k.transport
}

// Refit measures whole refits by stage, with and without the publisher's digests, and writes a table of medians and ranges.
// What verifying costs is the difference: verification overlaps reading, so that its own time says little.
func Refit(ctx context.Context, out io.Writer, o RefitOptions) error {
	o.setDefaults()
	kinds := []*kind{{transport: local.Name}, {transport: local.Name, unverified: true}, {transport: tcp.Name}, {transport: tcp.Name, unverified: true}}
	for range o.Turns {
		for _, k := range kinds { // by turns, since a machine is not the same all the time
			if err := k.measure(ctx, o); err != nil {
				return fmt.Errorf("measure a refit by %s: %w", k.title(), err)
			}
			runtime.GC()
		}
	}
	fmt.Fprintf(out, "A refit of %d MiB from %d trainers, plan known; %d cores, %s; median (least to most) of %d, ms\n",
		o.Nbytes>>20, stageRanks, runtime.NumCPU(), runtime.Version(), len(kinds[0].records))
	return writeRefit(out, kinds)
}

// measure refits one receiver a few times. The first round makes plan and connections, and touches everything: it isn't counted.
func (k *kind) measure(ctx context.Context, o RefitOptions) (err error) {
	b := &refitBench{transport: k.transport, nbytes: o.Nbytes / stageRanks, unverified: k.unverified}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx, o.Dir); err != nil {
		return err
	}
	for v := range uint64(o.Rounds + 2) { // both arenas are cold once
		rec, err := b.refit(ctx, v+1)
		if err != nil {
			return err
		}
		if v >= 2 {
			k.records, k.busy = append(k.records, rec), append(k.busy, float64(b.busy)/1e6)
		}
	}
	return nil
}

func writeRefit(out io.Writer, kinds []*kind) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, values func(*kind) []float64) {
		fmt.Fprint(w, "  ", name)
		for _, k := range kinds {
			fmt.Fprintf(w, "\t%s", spread(values(k)))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "  ")
	for _, k := range kinds {
		fmt.Fprintf(w, "\t%s", k.title())
	}
	fmt.Fprintln(w)
	for _, s := range tracing.Stages() {
		line(s.String(), func(k *kind) []float64 {
			return k.each(func(r *tracing.Record) tracing.Millis { return r.Stages.Get(s).DurationMs })
		})
	}
	line("end to end", (*kind).endToEnd)
	line("not explained by a stage", func(k *kind) []float64 {
		return k.each(func(r *tracing.Record) tracing.Millis { return r.UnattributedMs })
	})
	line("processor time, trainers included", func(k *kind) []float64 { return k.busy })
	for i := 0; i+1 < len(kinds); i += 2 {
		with, without := kinds[i], kinds[i+1]
		fmt.Fprintf(w, "  digests' share, %s\t%.0f %% of the time, %.0f %% of the processors'\n", with.transport,
			share(with.endToEnd(), without.endToEnd()), share(with.busy, without.busy))
	}
	return w.Flush()
}

func (k *kind) endToEnd() []float64 {
	return k.each(func(r *tracing.Record) tracing.Millis { return r.E2EMs })
}

// each lists a value of all records.
func (k *kind) each(value func(*tracing.Record) tracing.Millis) []float64 {
	all := make([]float64, len(k.records))
	for i, r := range k.records {
		all[i] = float64(value(r))
	}
	return all
}

// share is how much of the median with something is due to it, in percent.
func share(with, without []float64) float64 {
	return 100 * (median(with) - median(without)) / median(with)
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// spread writes the median, the least and the most.
func spread(values []float64) string {
	least, most := slices.Min(values), slices.Max(values)
	if most == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median(values), least, most)
}
