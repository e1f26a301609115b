package refit

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// big is a world of one trainer rank that holds one matrix of rows of 1,024 bfloat16 numbers, and of a destination that
// wants it.
type big struct {
	*world
	layout *messages.Layout
	dest   plan.Dest
}

// newBig makes a matrix of nbytes, wanted as dtype. As another type than it is served in, every byte goes through staging.
func newBig(t *testing.T, nbytes int64, dtype plan.DType) *big {
	t.Helper()
	const columns = 1024
	shape := []int64{nbytes / 2 / columns, columns}
	w := newWorld(t, worldOptions{})
	l := &messages.Layout{
		Regions: []int64{nbytes}, Names: []string{"w"}, DTypes: []messages.DType{messages.BF16}, ShapeEnd: []uint32{2}, Shapes: shape,
		Grid: tiles.ChooseGrid(shape, 2, tiles.Options{}), Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0},
		Box: []int64{0, shape[0], 0, shape[1]},
	}
	transport := w.net.New("big")
	t.Cleanup(func() { _ = transport.Close() })
	slot, err := rdma.Alloc(nbytes, rdma.AllocOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPublisher(w.ctx, PublisherConfig{
		Model: w.cfg.Model, Incarnation: "big", World: 1, Job: "job", Control: w.control, Transports: []rdma.Transport{transport},
		Slots: []*rdma.Memory{slot}, Layout: l,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := slot.Close(); err != nil {
			t.Error(err)
		}
	})
	w.ranks = append(w.ranks, p)
	return &big{world: w, layout: l, dest: plan.Dest{
		Params: []plan.Param{{Name: "w", DType: dtype, Shape: shape}},
		Copies: []plan.Copy{{Source: "w", Shape: shape, Stride: []int64{columns, 1}}},
	}}
}

// commit publishes a version whose bytes all differ from those of the one before, as a step of training has it.
func (w *big) commit(version uint64) messages.Key {
	w.t.Helper()
	mem, err := w.ranks[0].Memory(w.ctx, version)
	if err == nil {
		b := mem.Bytes()
		for i := 0; i < len(b); i += 2 {
			b[i] = byte(version)
		}
		_, err = w.ranks[0].Publish(w.ctx, version)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return w.ranks[0].Key(version)
}

// highWater keeps the most that the process had resident, beside shared memory, at any read. Reads are when staging is
// in use.
type highWater struct {
	mu   sync.Mutex
	most int64
}

func (h *highWater) look(t *testing.T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = max(h.most, resident(t, "RssAnon"))
}

// TestMemoryBeyondTheArenasIsTheBudget stages a model of many times the budget, all of it through staging, and looks at
// what the process has resident at each read. It runs alone: it measures the whole process.
func TestMemoryBeyondTheArenasIsTheBudget(t *testing.T) {
	const nbytes, budget = 96 << 20, 8 << 20
	w := newBig(t, nbytes, plan.F32)
	water := &highWater{}
	r, _, _ := w.trapped(func(c *ReceiverConfig) {
		c.Dests, c.StagingBytes, c.Lanes, c.Workers = []plan.Dest{w.dest}, budget, 4, 2
		c.Transports[0] = &watched{c.Transports[0], func() { water.look(t) }}
	})
	key := w.commit(1)
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // garbage of the tests before is no part of what is measured
	debug.FreeOSMemory()
	before := resident(t, "RssAnon")
	stats := w.refit(r, key)
	if stats.Brought != nbytes || stats.Staged != 2*nbytes {
		t.Fatalf("%+v: not everything went through staging", stats)
	}
	counted := r.staging.bytes() + r.edges.bytes()
	if limit := int64(budget + edgeSlots*edgeBytes); counted > limit {
		t.Errorf("%d bytes of staging and edges were allocated, the budget is %d", counted, limit)
	}
	const heap = 40 << 20 // of the Go heap, most of it under the race detector: plan, digests, what the collector has not taken yet
	grown := water.most - before
	t.Logf("%d MiB staged; %d MiB of staging; resident memory grew by %d MiB", 2*nbytes>>20, counted>>20, grown>>20)
	if grown > counted+heap {
		t.Errorf("resident memory grew by %d bytes, with %d of staging", grown, counted)
	}
}

// TestASlowSourceMayTakeAsLongAsItGetsOn has each batch take a good part of the progress deadline, so that all of them take
// several times as long as it: what is bounded is the time without a batch, not the model's.
func TestASlowSourceMayTakeAsLongAsItGetsOn(t *testing.T) {
	t.Parallel()
	const stall, each = 1500 * time.Millisecond, 600 * time.Millisecond
	w := newBig(t, 64<<20, plan.BF16)
	reads := atomic.Int64{}
	r := w.receiver(func(c *ReceiverConfig) {
		c.Dests, c.Stall, c.Lanes = []plan.Dest{w.dest}, stall, 1
		c.Transports[0] = &watched{c.Transports[0], func() { reads.Add(1); pass(t, each) }}
	})
	begin := time.Now()
	w.refit(r, w.commit(1))
	if took := time.Since(begin); took <= stall || reads.Load() < 4 {
		t.Errorf("%d reads took %v, which is no longer than the deadline of %v: nothing was tested", reads.Load(), took, stall)
	}
}

// watched calls a function at each read.
type watched struct {
	rdma.Transport
	look func()
}

func (t *watched) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	p, err := t.Transport.Connect(ctx, r)
	if err != nil {
		return nil, err
	}
	return &watchedPeer{p, t.look}, nil
}

type watchedPeer struct {
	rdma.Peer
	look func()
}

func (p *watchedPeer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	p.look()
	return p.Peer.Read(dst, segs)
}
