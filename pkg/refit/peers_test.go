package refit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// deafFirst is a transport whose first connection never ends a read unless it is aborted.
type deafFirst struct {
	rdma.Transport
	mu       sync.Mutex
	connects int
}

func (d *deafFirst) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	p, err := d.Transport.Connect(ctx, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connects++; d.connects > 1 || err != nil {
		return p, err
	}
	return deafPeer{p}, nil
}

type deafPeer struct{ rdma.Peer }

func (deafPeer) Read(*rdma.Memory, []rdma.Segment) (rdma.Transfer, error) {
	return &deafTransfer{aborted: make(chan struct{})}, nil
}

type deafTransfer struct {
	once    sync.Once
	aborted chan struct{}
}

func (t *deafTransfer) Abort() { t.once.Do(func() { close(t.aborted) }) }

func (t *deafTransfer) Wait(ctx context.Context) error {
	select {
	case <-t.aborted:
		return &rdma.Error{Kind: rdma.ErrAborted, Op: "read", Transport: "deaf"}
	case <-ctx.Done():
		return fmt.Errorf("wait: %w", context.Cause(ctx))
	}
}

func TestAStalledConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	r := w.receiver(func(c *ReceiverConfig) {
		c.Transports[0] = &deafFirst{Transport: c.Transports[0]}
		c.Stall = 500 * time.Millisecond
	})
	stats := w.refit(r, w.publish(1))
	w.serves(r, 1)
	if stats.Retries == 0 {
		t.Error("nothing was read again")
	}
}

// TestARankThatFailedIsLeftToItsReplicas brings the same batch in twice: the rank that failed the first is not asked again.
func TestARankThatFailedIsLeftToItsReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 3, replicated: true})
	var hits atomic.Int32
	r := w.faulty(rdmatest.Fault{Kind: rdmatest.Reset, Rank: 1, Injected: func(int, rdma.Segment, int64) { hits.Add(1) }})
	v, err := w.control.Assemble(w.ctx, w.publish(1))
	if err != nil {
		t.Fatal(err)
	}
	found, _, err := r.plans.get(v)
	if err != nil {
		t.Fatal(err)
	}
	slot, _, err := r.arenas.Resume(arena.Version{}, arena.Content{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	u := &pull{r: r, version: v, slot: slot, checks: newVerifier(v, found), cpu: make(chan struct{}, 1)}
	queue := queuesOf(found.plan)[1]
	if len(queue) == 0 {
		t.Fatal("nothing is planned from rank 1")
	}
	for range 2 {
		if err := u.batch(w.ctx, found.plan, queue[0], nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := u.sums.retries.Load(); n != 2 {
		t.Errorf("%d retries, want 2: the same rank again, and the replicas; then the replicas at once", n)
	}
	if n, once := hits.Load(), int32(len(segmentsByMemory(u, found.plan, queue[0]))); n != 2*once {
		t.Errorf("rank 1 was read %d times, want two attempts of %d reads", n, once)
	}
}

func segmentsByMemory(u *pull, p *plan.Plan, i int) map[*rdma.Memory]bool {
	found := map[*rdma.Memory]bool{}
	for s := range p.Segments(i) {
		found[u.memory(s.Dest, nil)] = true
	}
	return found
}
