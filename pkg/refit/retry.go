package refit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// batch brings one batch in: from its rank, once more from there where that may help, then from other ranks that hold
// the same boxes. avoid names the ranks that failed already. Of a rank that failed before, replicas are asked first: each of
// its batches would cost two deadlines otherwise.
func (u *pull) batch(ctx context.Context, p *plan.Plan, i int, avoid []int) error {
	rank := p.Batch(i).Rank
	if u.doubtful(ctx, rank) {
		if other, err := u.reroute(p, i, avoid); err == nil {
			u.reads[rank].standIn(other)
			return u.batches(ctx, other, append(slices.Clone(avoid), rank))
		}
	}
	err := u.attempt(ctx, p, i)
	if retriable(ctx, err) {
		u.retry(rank, err, "again")
		err = u.attempt(ctx, p, i)
	}
	if !retriable(ctx, err) {
		u.report(rank, err)
		return err
	}
	u.failed(rank, err)
	other, rerr := u.reroute(p, i, avoid)
	if rerr != nil {
		return fmt.Errorf("%w; and no other rank can stand in: %w", err, rerr)
	}
	u.retry(rank, err, "from replicas")
	u.reads[rank].standIn(other)
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
	u.reads[rank].again(classOf(err), how)
	u.r.cfg.Logger.Warn("batch is read "+how, "rank", rank, "key", u.version.Manifest.Key.String(), "error", err)
}
