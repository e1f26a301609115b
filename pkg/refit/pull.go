package refit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

	sums sums

	mu      sync.Mutex
	givenUp map[*rdma.Memory]bool // transfers into it never ended
	suspect map[int]bool          // ranks from which a batch could not be had: their replicas are asked first
}

// sums counts what a pull did. All are bytes but the last.
type sums struct {
	wire              atomic.Int64 // read, repetitions and edges included
	brought, verified atomic.Int64 // of the batches that ended well
	retries           atomic.Int64
}

// run executes p. It returns when nothing of it is in flight any more.
func (u *pull) run(ctx context.Context, p *plan.Plan) error {
	queues := queuesOf(p)
	group, ctx := errgroup.WithContext(ctx)
	for rank, queue := range queues {
		lanes := min(u.r.cfg.Lanes, len(queue))
		var next atomic.Int64
		var moved atomic.Int64
		report := u.reportRank(rank, lanes, &moved)
		for range lanes {
			group.Go(func() (err error) {
				defer func() { report(err) }()
				for i := next.Add(1) - 1; int(i) < len(queue); i = next.Add(1) - 1 {
					if err := u.batch(ctx, p, queue[i], nil); err != nil {
						return err
					}
					moved.Add(p.Batch(queue[i]).Wire)
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

// reportRank opens a detail span for the reads of one rank, which the last of its lanes ends.
func (u *pull) reportRank(rank, lanes int, moved *atomic.Int64) func(error) {
	d := u.wire.Detail("read", tracing.AttrSource.Int(rank))
	var mu sync.Mutex
	var first error
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
		}
		if lanes--; lanes == 0 {
			d.Set(tracing.AttrBytes.Int64(moved.Load()), tracing.AttrTransport.String(u.r.peers.transport(rank)))
			d.End(first)
		}
	}
}

// batch brings one batch in: from its rank, once more from there where that may help, then from other ranks that hold
// the same boxes. avoid names the ranks that failed already. Of a rank that failed once, replicas are asked first: each of
// its batches would cost two deadlines otherwise.
func (u *pull) batch(ctx context.Context, p *plan.Plan, i int, avoid []int) error {
	rank := p.Batch(i).Rank
	if u.isSuspect(rank) {
		if other, err := u.reroute(p, i, avoid); err == nil {
			return u.batches(ctx, other, append(slices.Clone(avoid), rank))
		}
	}
	err := u.attempt(ctx, p, i)
	if retriable(ctx, err) {
		u.retry(rank, err, "again")
		err = u.attempt(ctx, p, i)
	}
	if !retriable(ctx, err) {
		return err
	}
	u.makeSuspect(rank)
	other, rerr := u.reroute(p, i, avoid)
	if rerr != nil {
		return fmt.Errorf("%w; and no other rank can stand in: %w", err, rerr)
	}
	u.retry(rank, err, "from replicas")
	return u.batches(ctx, other, append(slices.Clone(avoid), rank))
}

// reroute plans a batch anew for ranks that have not failed it; those that are not suspect at all come first.
func (u *pull) reroute(p *plan.Plan, i int, avoid []int) (*plan.Plan, error) {
	failed := func(r int) bool { return r == p.Batch(i).Rank || slices.Contains(avoid, r) }
	if other, err := p.Reroute(i, func(r int) bool { return failed(r) || u.isSuspect(r) }); err == nil {
		return other, nil
	}
	return p.Reroute(i, failed)
}

// batches brings all batches of a plan in, one after the other.
func (u *pull) batches(ctx context.Context, p *plan.Plan, avoid []int) error {
	for i := range p.Batches() {
		if err := u.batch(ctx, p, i, avoid); err != nil {
			return err
		}
	}
	return nil
}

func (u *pull) isSuspect(rank int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.suspect[rank]
}

func (u *pull) makeSuspect(rank int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.suspect == nil {
		u.suspect = map[int]bool{}
	}
	u.suspect[rank] = true
}

// retriable says whether another attempt could end better: the source or the way to it failed, and nobody has given up.
func retriable(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil || errors.Is(err, errNeverEnded) {
		return false
	}
	switch classOf(err) {
	case SourceLost, CorruptTile, Deadline:
		return true
	}
	return false
}

func (u *pull) retry(rank int, err error, how string) {
	u.sums.retries.Add(1)
	u.r.cfg.Metrics.Retry(u.r.cfg.Model, string(classOf(err)))
	u.wire.Event(tracing.EventRetry, tracing.AttrSource.Int(rank))
	u.r.cfg.Logger.Warn("batch is read "+how, "rank", rank, "key", u.version.Manifest.Key.String(), "error", err)
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
	if err = f(m); u.isGivenUp(m) {
		u.r.cfg.Logger.Error("staging memory quarantined: a transfer into it never ended", "bytes", m.Len(), "error", err)
		ring.quarantine(m)
	} else {
		ring.release(m)
	}
	return err
}

// giveUp notes that a transfer may write to m at any time from now on.
func (u *pull) giveUp(m *rdma.Memory) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.givenUp == nil {
		u.givenUp = map[*rdma.Memory]bool{}
	}
	u.givenUp[m] = true
}

func (u *pull) isGivenUp(m *rdma.Memory) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.givenUp[m]
}

// arenaGivenUp says whether a transfer may still write to the slot.
func (u *pull) arenaGivenUp() bool {
	for i := range u.r.cfg.Dests {
		if u.isGivenUp(u.slot.Memory(i)) {
			return true
		}
	}
	return false
}

// into reads a batch into the arenas or into staging, verifies it, and moves it out of staging.
func (u *pull) into(ctx context.Context, p *plan.Plan, i int, staging *rdma.Memory) error {
	b := p.Batch(i)
	regions := u.version.Ranks[b.Rank].Table.Regions
	segments := map[*rdma.Memory][]rdma.Segment{}
	for s := range p.Segments(i) {
		m := u.memory(s.Dest, staging)
		segments[m] = append(segments[m], segment(&s, regions))
	}
	if err := u.transfer(ctx, b.Rank, segments); err != nil {
		return err
	}
	u.crossed(b.Wire)
	var t tally
	if err := u.verifyEdges(ctx, p, i, staging, &t); err != nil {
		return err
	}
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

// transfer reads from one rank into one or more memories, and waits for the end of all of it.
func (u *pull) transfer(ctx context.Context, rank int, segments map[*rdma.Memory][]rdma.Segment) error {
	given := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, u.r.cfg.Stall, &stallError{rank, u.r.cfg.Stall})
	defer cancel()
	conn, _, err := u.r.peers.get(ctx, u.version, rank)
	if err != nil {
		return because(ctx, err)
	}
	posted := map[*rdma.Memory]rdma.Transfer{}
	for m, segs := range segments {
		t, rerr := conn.Read(m, segs)
		if rerr != nil {
			err = rerr
			break
		}
		posted[m] = t
	}
	for m, t := range posted {
		err = errors.Join(err, u.await(ctx, t, m))
	}
	if err != nil && given.Err() == nil && rdma.KindOf(err) != rdma.ErrRefused {
		u.r.peers.drop(rank, conn)
	}
	return err
}

// errNeverEnded marks a transfer that reached no terminal state. Its destination is given up.
var errNeverEnded = errors.New("the transfer has not ended, and may still write")

// abortGrace is how long an aborted transfer may take to end before its memory is given up.
const abortGrace = 10 * time.Second

// await waits for the terminal state of a transfer into m, always: memory is free to use only then.
func (u *pull) await(ctx context.Context, t rdma.Transfer, m *rdma.Memory) error {
	err := t.Wait(ctx)
	end := err
	if err != nil && ctx.Err() != nil {
		t.Abort()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
		defer cancel()
		end, err = t.Wait(grace), because(ctx, err)
	}
	if end != nil && (rdma.KindOf(end) == 0 || rdma.KindOf(end) == rdma.ErrQuarantined) {
		u.giveUp(m)
		return fmt.Errorf("%w: %w", err, errNeverEnded)
	}
	return err
}

// because tells why the context ended instead of that it did.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
		return cause
	}
	return err
}

// stallError is the cause of a batch's deadline.
type stallError struct {
	rank  int
	limit time.Duration
}

func (e *stallError) Error() string {
	return fmt.Sprintf("read from rank %d: no batch ended within %v", e.rank, e.limit)
}

func (e *stallError) Unwrap() error { return context.DeadlineExceeded }

// finish verifies what a batch brought and moves it out of staging.
func (u *pull) finish(ctx context.Context, p *plan.Plan, i int, staging *rdma.Memory, t *tally) error {
	select {
	case u.cpu <- struct{}{}:
		defer func() { <-u.cpu }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := u.verifyBatch(p, i, staging, t); err != nil || staging == nil {
		return err
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

// verifyBatch checks the tiles that a batch brought whole.
func (u *pull) verifyBatch(p *plan.Plan, i int, staging *rdma.Memory, t *tally) error {
	done := u.verify.Work()
	defer done()
	for piece := range p.Pieces(i) {
		verified, err := u.checks.piece(piece, u.memory(piece.Dest, staging).Bytes())
		if err != nil {
			return err
		}
		t.verified += verified
		t.brought += u.checks.nbytes(piece)
	}
	u.verify.AddBytes(t.verified)
	return nil
}

// fill writes the constant regions.
func (u *pull) fill(p *plan.Plan) error {
	fills := p.FillOps()
	for i := range fills {
		if err := fills[i].Do(u.slot.Memory(fills[i].Dest).Bytes()); err != nil {
			return as(PlanRefused, fmt.Errorf("fill constant regions: %w", err))
		}
	}
	return nil
}
