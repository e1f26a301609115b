package refit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// applied stands among classes for a cycle that ends well.
const applied Class = ""

// fault is something that happens to a cycle at a point.
type fault struct {
	name   string
	skip   func(i int) bool          // points at which it can't happen, or would say nothing new
	strike func(*faultWorld)         // at the point, on the goroutine that got there
	mend   func(*faultWorld, uint64) // afterwards, so that the next version can be published
	want   func(i int) []Class       // how the cycle may end
	serves func(i int) (newest bool) // nil: the version serves exactly if the cycle ended well
}

// until is want for a fault that ends cycles with a class up to a point, and that later ones don't notice. At the point
// itself both may happen.
func until(name string, class Class) func(int) []Class {
	return func(i int) []Class {
		switch {
		case points[i].name == name:
			return []Class{class, applied}
		case before(i, name):
			return []Class{class}
		}
		return []Class{applied}
	}
}

// faults are what can happen to a receiver's cycle, from outside and from inside. Processes that are killed and stopped
// for real are in the table of package integration.
var faults = []fault{
	{
		name:   "the caller gives up",
		strike: func(w *faultWorld) { w.giveUp() },
		want: func(i int) []Class {
			if before(i, "may be applied") { // from then on the engine decides, and a flip takes microseconds
				return []Class{Cancelled}
			}
			return []Class{applied}
		},
	},
	{
		name:   "a source dies",
		strike: func(w *faultWorld) { w.killRank(1) },
		mend:   func(w *faultWorld, v uint64) { w.withdraw(v); w.startRank(1) },
		want:   until(midRead, SourceLost),
	},
	{
		name:   "a source stalls",
		skip:   func(i int) bool { return i%3 != 0 && before(i, "reading begins") }, // each costs two deadlines
		strike: func(w *faultWorld) { w.stall.Store(true) },
		mend:   func(w *faultWorld, _ uint64) { w.stall.Store(false) },
		want: func(i int) []Class { // the source that fails again and again is left alone in the end
			return append(until(midRead, Deadline)(i), until(midRead, SourceLost)(i)...)
		},
	},
	{
		name:   "a source sends wrong bytes",
		strike: func(w *faultWorld) { w.corrupt.Store(true) },
		mend:   func(w *faultWorld, _ uint64) { w.corrupt.Store(false) },
		want:   until(midRead, CorruptTile),
	},
	{
		name: "the message server dies",
		skip: func(i int) bool {
			return !slices.Contains([]string{"stage begins", "planned", midRead, "staged", inInstaller}, points[i].name)
		},
		strike: func(w *faultWorld) { w.server.Shutdown() },
		mend:   func(w *faultWorld, _ uint64) { w.restartServer() },
		want: func(i int) []Class {
			if before(i, "may be applied") {
				return []Class{ControlPlane}
			}
			return []Class{applied}
		},
	},
	{
		name:   "another job takes over",
		strike: func(w *faultWorld) { w.takeOver() },
		mend:   func(w *faultWorld, _ uint64) { w.restartJob() },
		want: func(i int) []Class {
			if before(i, "may be applied") {
				return []Class{Superseded}
			}
			return []Class{applied}
		},
	},
	{
		name:   "the trainer withdraws the version",
		strike: func(w *faultWorld) { w.withdrawing() },
		mend:   func(w *faultWorld, _ uint64) { w.withdrawn() },
		want: func(i int) []Class {
			if points[i].name == "stage begins" {
				return []Class{Gone}
			}
			return []Class{applied} // the lease holds its bytes until they are read
		},
	},
	{
		name:   "a defect",
		skip:   func(i int) bool { return points[i].name == midRead }, // not on the caller's goroutine: it ends the process
		strike: func(*faultWorld) { panic("defect") },
		want:   func(int) []Class { return []Class{panicked} },
		serves: func(i int) bool { return !before(i, "flipped, not shown yet") },
	},
}

// panicked stands among classes for a cycle that ended by a panic.
const panicked Class = "panic"

// faultWorld is a world whose parts can fail and come back.
type faultWorld struct {
	*world
	troubles
	giveUp   context.CancelFunc
	version  uint64 // under way
	job      int
	retiring sync.WaitGroup
}

// TestFaultAtEachStage has each fault happen at each point of a cycle. In every cell: what serves does not change until
// the whole version does; the cycle ends as the table says and reports once; its lease is given back; and the next version
// is served, byte for byte.
func TestFaultAtEachStage(t *testing.T) {
	t.Parallel()
	for i := range faults {
		f := &faults[i]
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newFaultWorld(t)
			r, trap, lines := w.trapped(func(c *ReceiverConfig) {
				c.Stall = time.Second
				c.Transports[0] = &troubled{c.Transports[0], &w.troubles}
			})
			w.refit(r, w.publishHere(1))
			for i := range points {
				if f.skip == nil || !f.skip(i) {
					w.cell(r, trap, lines, f, i)
				}
			}
		})
	}
}

// cell runs one cycle with a fault at a point, and a good one after it.
func (w *faultWorld) cell(r *Receiver, trap *trap, lines *recordLines, f *fault, i int) {
	w.t.Helper()
	old, v := w.version, w.version+1
	key := w.publishHere(v)
	live := w.live(r)
	trap.set(&points[i], func() {
		if before(i, "flipped, not shown yet") && !bytesEqual(live, w.live(r)) {
			w.t.Errorf("%s, %s: what serves changed before apply", f.name, points[i].name)
		}
		f.strike(w)
	})
	class := w.cycle(r, key)
	cell := fmt.Sprintf("%s, %s", f.name, points[i].name)
	if !trap.sprung() {
		w.t.Fatalf("%s: the point was not reached", cell)
	}
	if f.mend != nil {
		f.mend(w, v)
	}
	if !slices.Contains(f.want(i), class) {
		w.t.Errorf("%s: the cycle ended as %q, expected one of %q", cell, class, f.want(i))
	}
	serves, isNew := old, class == applied
	if f.serves != nil {
		isNew = f.serves(i)
	}
	if isNew {
		serves = v
	}
	w.serves(r, serves)
	if serves == old && !bytesEqual(live, w.live(r)) {
		w.t.Errorf("%s: what serves changed", cell)
	}
	lines.once(w.t, v, outcomeFor(class))
	w.eventually(cell+": no lease is left", func() bool {
		holders, err := w.control.Holders(w.ctx, key)
		return err == nil && len(holders) == 0
	})
	w.refit(r, w.publishHere(v+1))
	w.serves(r, v+1)
	if w.t.Failed() {
		w.t.Fatalf("after %s", cell)
	}
}

// outcomeFor is what the record of a cycle says that ended with a class.
func outcomeFor(c Class) tracing.Outcome {
	switch c {
	case applied:
		return tracing.OutcomeApplied
	case panicked:
		return tracing.OutcomeAbandoned
	case Gone, Superseded:
		return tracing.OutcomeSuperseded
	}
	return tracing.OutcomeFailed
}

// cycle stages and applies a version as a careful caller does, and tells how it ended.
func (w *faultWorld) cycle(r *Receiver, key messages.Key) (class Class) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.giveUp = cancel
	defer func() {
		if recover() != nil {
			class = panicked
		}
	}()
	s, err := r.Stage(ctx, key)
	if err != nil {
		return ClassOf(err)
	}
	defer r.Release(s) // also on a panic of the caller's own
	if err := r.Apply(ctx, s); err != nil {
		return ClassOf(err)
	}
	return applied
}

func newFaultWorld(t *testing.T) *faultWorld {
	w := &faultWorld{world: newWorld(t, worldOptions{ranks: 2, cfg: messages.Config{OpTimeout: time.Second, Deadline: 4 * time.Second, LeaseTTL: 6 * time.Second}})}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience) // for all of a fault's cells
	t.Cleanup(cancel)
	w.ctx = ctx
	t.Cleanup(w.retiring.Wait)
	return w
}

// publishHere is publish that remembers the version.
func (w *faultWorld) publishHere(version uint64) messages.Key {
	w.t.Helper()
	w.version = version
	return w.publish(version)
}

// live is every byte that serves, and where the name leads.
func (w *faultWorld) live(r *Receiver) [][]byte {
	link := filepath.Join(r.ArenaRoot(), "current")
	target, err := os.Readlink(link)
	if err != nil {
		w.t.Errorf("read what serves: %v", err)
	}
	all := [][]byte{[]byte(target)}
	for _, rank := range r.ranks() {
		b, err := os.ReadFile(filepath.Join(link, fmt.Sprintf("rank-%d.safetensors", rank)))
		if err != nil {
			w.t.Errorf("read what serves: %v", err)
		}
		all = append(all, b)
	}
	return all
}

func bytesEqual(a, b [][]byte) bool {
	return slices.EqualFunc(a, b, bytes.Equal)
}

// killRank ends a trainer rank's transport: its memory can't be read any more.
func (w *faultWorld) killRank(rank int) {
	if err := w.ranks[rank].cfg.Transports[0].Close(); err != nil {
		w.t.Error(err)
	}
}

// startRank starts a rank anew, with another incarnation and empty memory.
func (w *faultWorld) startRank(rank int) {
	w.t.Helper()
	old := w.ranks[rank]
	if err := old.Close(); err != nil {
		w.t.Fatal(err)
	}
	cfg := old.cfg
	cfg.Incarnation = rdma.NewIncarnation()
	cfg.Job = w.jobName()
	transport := w.net.New(cfg.Incarnation)
	cfg.Transports = []rdma.Transport{transport}
	w.t.Cleanup(func() { _ = transport.Close() })
	p, err := NewPublisher(w.ctx, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.ranks[rank] = p
}

func (w *faultWorld) jobName() string {
	if w.job == 0 {
		return "job"
	}
	return fmt.Sprintf("job %d", w.job)
}

// withdraw gives up a version of which a rank's bytes are gone, as a trainer does whose rank has restarted.
func (w *faultWorld) withdraw(version uint64) {
	w.t.Helper()
	for _, p := range w.ranks {
		if err := p.Retire(w.ctx, version); err != nil {
			w.t.Fatal(err)
		}
	}
}

// withdrawing begins to withdraw the version that is under way. On the way to its readers' leases it is seen by everybody
// before this returns.
func (w *faultWorld) withdrawing() {
	key := w.ranks[0].Key(w.version)
	for _, p := range w.ranks {
		w.retiring.Go(func() {
			if err := p.Retire(w.ctx, key.Version); err != nil {
				w.t.Error(err)
			}
		})
	}
	w.eventually("withdrawn", func() bool {
		why, err := w.control.Why(w.ctx, key)
		return err == nil && why.Ended != nil
	})
}

func (w *faultWorld) withdrawn() { w.retiring.Wait() }

// takeOver has another job take the next run.
func (w *faultWorld) takeOver() {
	w.job++
	if _, err := w.control.TakeRun(w.ctx, w.jobName(), len(w.ranks)); err != nil {
		w.t.Error(err)
	}
}

// restartJob starts the trainers of the job that took over.
func (w *faultWorld) restartJob() {
	for rank := range w.ranks {
		w.startRank(rank)
	}
}

func (w *faultWorld) restartServer() {
	w.t.Helper()
	if err := w.server.Restart(); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the server answers", func() bool {
		_, _, err := w.control.Run(w.ctx)
		return err == nil
	})
}
