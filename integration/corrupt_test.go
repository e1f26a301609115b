package integration

import (
	"math"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// behindProxy starts all ranks, the last of them behind a proxy.
func (w *world) behindProxy(args ...string) (*proxy, []*process) {
	w.t.Helper()
	p := newProxy(w.t, freePort(w.t))
	all := make([]*process, w.trainers)
	for rank := range all {
		all[rank] = w.publisher(rank, args...)
		if rank == w.trainers-2 {
			args = append(args, "--listen", p.target, "--advertise", p.addr)
		}
	}
	return p, all
}

// TestCorruptByteOnce has one byte arrive wrong. The batch is read again, and what is served is right.
func TestCorruptByteOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	p, publishers := w.behindProxy("--versions", "2")
	r := w.receiver("host")
	r.serves(1)
	p.corrupt(1)
	w.open(1)
	r.record(2, tracing.OutcomeApplied)
	r.shows(2, 2)
	if p.done.Load() != 1 {
		t.Fatalf("%d answers were corrupted, expected 1", p.done.Load())
	}
	r.awaitSaid("batch is read again", "rank=1", "its publisher says")
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestCorruptByteForEver has every answer of one rank arrive wrong. The version can't be applied; the old one serves,
// the status says why, and when the wire is good again the version is applied.
func TestCorruptByteForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	p, publishers := w.behindProxy("--versions", "2")
	r := w.receiver("host")
	r.serves(1)
	before := r.image()
	p.corrupt(math.MaxInt64)
	w.open(1)
	failure := r.failed(2, refit.CorruptTile)
	for _, word := range []string{"rank 1", "source ", "old version serves"} {
		if !strings.Contains(failure.Text, word) {
			t.Errorf("the failure doesn't say %q: %s", word, failure.Text)
		}
	}
	r.unchanged(before)
	r.shows(1, 1)
	p.corrupt(0)
	r.record(2, tracing.OutcomeApplied)
	r.shows(2, 2)
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// TestCorruptReplica has every answer of one rank arrive wrong, where another rank holds the same boxes.
func TestCorruptReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1, trainers: 4, layout: "hsdp"})
	p, publishers := w.behindProxy("--versions", "2")
	r := w.receiver("host")
	r.record(1, tracing.OutcomeApplied)
	r.shows(1, 1)
	p.corrupt(math.MaxInt64)
	w.open(1)
	r.record(2, tracing.OutcomeApplied)
	r.shows(2, 2)
	if p.done.Load() == 0 {
		t.Skip("the plan reads nothing from the rank behind the proxy")
	}
	r.awaitSaid("batch is read from replicas", "rank=3")
	r.leavesCleanly(true)
	leave(t, publishers...)
}
