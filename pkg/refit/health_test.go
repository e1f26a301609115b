package refit

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// clock is a time that a test moves.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// breaking is a world in which every tensor is held by two ranks, and a receiver whose reads of rank 0 are hit by a fault.
// hits counts the faults.
func breaking(t *testing.T, count int) (w *world, r *Receiver, c *clock, hits *atomic.Int64) {
	t.Helper()
	w = newWorld(t, worldOptions{ranks: 2, replicated: true})
	c, hits = &clock{}, &atomic.Int64{}
	r = w.receiver(func(cfg *ReceiverConfig) {
		cfg.Lanes, cfg.Health = 1, rdma.HealthConfig{Now: c.now, Cooldown: 2 * time.Second}
		cfg.Transports[0] = rdmatest.Faulty(cfg.Transports[0], rdmatest.Fault{
			Kind: rdmatest.Reset, Rank: 0, Count: count, Injected: func(int, rdma.Segment, int64) { hits.Add(1) },
		})
	})
	return w, r, c, hits
}

func TestASourceThatFailedIsLeftAloneOverVersions(t *testing.T) {
	t.Parallel()
	w, r, c, hits := breaking(t, 0)
	for v, step := range []struct {
		wait  time.Duration
		reads int64 // of rank 0
	}{
		{0, 2},               // a batch, twice
		{time.Second, 0},     // cooling down
		{1 * time.Second, 1}, // a probe, and the cooldown is doubled
		{3 * time.Second, 0},
		{1 * time.Second, 1},
	} {
		c.advance(step.wait)
		before := hits.Load()
		w.refit(r, w.publish(uint64(v+1)))
		w.serves(r, uint64(v+1))
		if n := hits.Load() - before; n != step.reads {
			t.Errorf("version %d: rank 0 was read %d times, want %d", v+1, n, step.reads)
		}
		if s := r.health.State(0); s != rdma.BreakerOpen {
			t.Errorf("version %d: breaker of rank 0 is %s", v+1, s)
		}
	}
}

func TestABreakerClosesAgain(t *testing.T) {
	t.Parallel()
	w, r, c, hits := breaking(t, 2)
	w.refit(r, w.publish(1))
	if s := r.health.State(0); s != rdma.BreakerOpen || hits.Load() != 2 {
		t.Fatalf("breaker of rank 0 is %s after %d faults", s, hits.Load())
	}
	c.advance(2 * time.Second)
	w.refit(r, w.publish(2))
	w.serves(r, 2)
	if s := r.health.State(0); s != rdma.BreakerClosed {
		t.Errorf("breaker of rank 0 is %s although its probe went well", s)
	}
	if stats := w.refit(r, w.publish(3)); stats.Retries != 0 || stats.Ranks != 2 {
		t.Errorf("afterwards: %+v", stats)
	}
}

func TestASourceThatNobodyCanReplaceIsAskedAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(func(c *ReceiverConfig) {
		c.Lanes = 1 // the second attempt is the second fault
		c.Transports[0] = rdmatest.Faulty(c.Transports[0], rdmatest.Fault{Kind: rdmatest.Reset, Rank: 0, Count: 2})
	})
	_ = w.fails(r, w.publish(1), SourceLost)
	if s := r.health.State(0); s != rdma.BreakerOpen {
		t.Fatalf("breaker of rank 0 is %s", s)
	}
	w.refit(r, w.publish(2)) // at once, within the cooldown
	w.serves(r, 2)
	if s := r.health.State(0); s != rdma.BreakerClosed {
		t.Errorf("breaker of rank 0 is %s although its reads went well", s)
	}
}

// TestAProbeReadsWhereThereAreBytes: a rank's first region may be empty, and be any of its endpoint's.
func TestAProbeReadsWhereThereAreBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sizes       []int64
		mapped      []uint32
		region      uint32
		nbytes, src int64
	}{
		{[]int64{1 << 20}, nil, 0, probeBytes, 0},
		{[]int64{0, 100}, nil, 1, 100, 0},
		{[]int64{0, 0, 1 << 20}, []uint32{4, 5, 3}, 3, probeBytes, 0},
	} {
		v := &messages.RankVersion{Layout: &messages.Layout{Regions: c.sizes}, Table: &messages.Table{Regions: c.mapped}}
		if s := probeSegment(v); s.Region != c.region || s.Run != c.nbytes || s.Src != c.src || s.Nbytes() != c.nbytes {
			t.Errorf("regions of %v bytes, mapped to %v: %+v", c.sizes, c.mapped, s)
		}
	}
}
