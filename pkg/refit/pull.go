package refit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// pull executes one plan: it reads all batches into a slot of the arenas, verifies and transforms them.
//
// Each source rank has a few lanes. A lane takes the rank's next batch, reads it, and then verifies and transforms it
// while the rank's other lane reads on; so all ranks' reads are posted before any is awaited, and memory is bounded by
// lanes and staging slots, whatever the model's size.
type pull struct {
	r       *Receiver
	version *messages.Version
	slot    *arena.Slot
	checks  *verifier

	wire, verify, transform *tracing.Span

	cpu chan struct{} // bounds batches being verified and transformed

	sums  sums
	reads map[int]*reads // by the rank that a batch was planned to come from; not changed once lanes run

	mu      sync.Mutex
	givenUp map[*rdma.Memory]bool // transfers into it never ended
	suspect map[int]bool          // ranks from which a batch could not be had: their replicas are asked first
}

// sums counts what a pull did. All are bytes but the last.
type sums struct {
	wire              atomic.Int64 // read, repetitions and edges included
	brought, verified atomic.Int64 // of the batches that ended well
	resumed, vouched  atomic.Int64 // of shards, in batches that were there already; of them, what their publishers digested
	retries           atomic.Int64
}

// run executes p, on top of b if there is one. It returns when nothing of it is in flight any more.
func (u *pull) run(ctx context.Context, p *plan.Plan, b *base) error {
	queues := u.missing(p)
	group, ctx := errgroup.WithContext(ctx)
	if b != nil {
		group.Go(func() error { return u.keep(ctx, p, b) })
	}
	for rank, queue := range queues {
		u.beginReads(rank, min(u.r.cfg.Lanes, len(queue)))
	}
	for rank, queue := range queues {
		var next atomic.Int64
		told := u.reads[rank]
		for range told.lanes {
			group.Go(func() (err error) {
				defer func() { told.end(err, u.r.peers.transport(rank)) }()
				for i := next.Add(1) - 1; int(i) < len(queue); i = next.Add(1) - 1 {
					if err := u.batch(ctx, p, queue[i], nil); err != nil {
						return err
					}
					u.came(p, queue[i])
					told.came(p.Batch(queue[i]))
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// queuesOf lists the batches of each source rank, in the plan's order.
func queuesOf(p *plan.Plan) map[int][]int {
	queues := map[int][]int{}
	for i := range p.Batches() {
		rank := p.Batch(i).Rank
		queues[rank] = append(queues[rank], i)
	}
	return queues
}

// attempt reads, verifies and transforms one batch, once.
func (u *pull) attempt(ctx context.Context, p *plan.Plan, i int) error {
	if p.Batch(i).Staging == 0 {
		return u.into(ctx, p, i, nil)
	}
	return u.withMemory(ctx, u.r.staging, func(staging *rdma.Memory) error { return u.into(ctx, p, i, staging) })
}

// withMemory borrows memory of a ring for f. Memory that a transfer may still write to does not go back.
func (u *pull) withMemory(ctx context.Context, ring *ring, f func(*rdma.Memory) error) error {
	m, err := ring.acquire(ctx)
	if err != nil {
		return err
	}
	u.r.cfg.Metrics.Staging(u.r.cfg.Model, u.r.lent.Add(m.Len()))
	defer func() { u.r.cfg.Metrics.Staging(u.r.cfg.Model, u.r.lent.Add(-m.Len())) }()
	if err = f(m); u.isGivenUp(m) {
		u.r.cfg.Logger.Error("staging memory quarantined: a transfer into it never ended", "bytes", m.Len(), "error", err)
		ring.quarantine(m)
	} else {
		ring.release(m)
	}
	return err
}

// into reads a batch into the arenas or into staging, verifies it while it comes, and moves it out of staging.
func (u *pull) into(ctx context.Context, p *plan.Plan, i int, staging *rdma.Memory) error {
	b := p.Batch(i)
	l := looks{u: u}
	reads, err := u.batchReads(p, i, staging, &l)
	if err != nil {
		return err
	}
	if err := u.transfer(ctx, b.Rank, reads); err != nil {
		return err
	}
	u.crossed(b.Wire)
	if err := l.failed(); err != nil {
		return err
	}
	t := tally{verified: l.verified.Load()}
	if err := u.verifyEdges(ctx, p, i, staging, &t); err != nil {
		return err
	}
	u.verify.AddBytes(t.verified)
	if err := u.finish(ctx, p, i, staging, &t); err != nil {
		return err
	}
	u.sums.brought.Add(t.brought)
	u.sums.verified.Add(t.verified)
	return nil
}

// tally counts what one attempt at a batch brought and verified, in bytes of shards. What a spanning read brings between
// the runs that are needed is thrown away and not counted.
type tally struct{ brought, verified int64 }

// crossed counts bytes that were read, for good or for nothing.
func (u *pull) crossed(nbytes int64) {
	u.sums.wire.Add(nbytes)
	u.wire.AddBytes(nbytes)
}

// memory is the destination of a segment or piece.
func (u *pull) memory(dest int, staging *rdma.Memory) *rdma.Memory {
	if dest == plan.Staging {
		return staging
	}
	return u.slot.Memory(dest)
}

// finish counts what a batch brought and moves it out of staging.
func (u *pull) finish(ctx context.Context, p *plan.Plan, i int, staging *rdma.Memory, t *tally) error {
	for piece := range p.Pieces(i) {
		t.brought += u.checks.nbytes(piece)
	}
	if staging == nil {
		return nil
	}
	select {
	case u.cpu <- struct{}{}:
		defer func() { <-u.cpu }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	done := u.transform.Work()
	defer done()
	for s := range p.Scatters(i) {
		if err := s.Do(u.slot.Memory(s.Dest).Bytes(), staging.Bytes()); err != nil {
			return as(PlanRefused, fmt.Errorf("transform what rank %d sent: %w", p.Batch(i).Rank, err))
		}
	}
	return nil
}

// fill writes the constant regions.
func (u *pull) fill(p *plan.Plan) error {
	fills := p.FillOps()
	for i := range fills {
		if err := fills[i].Do(u.slot.Memory(fills[i].Dest).Bytes()); err != nil {
			return as(PlanRefused, fmt.Errorf("fill constant regions: %w", err))
		}
		f := &fills[i]
		u.slot.Came(f.Dest, arena.Region{Off: f.Off, Run: int64(len(f.Pattern)), Shape: f.Shape, Stride: f.Stride})
	}
	return nil
}
