package refit

import (
	"context"
	"slices"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/landing"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// A source rank that failed a batch twice is left alone: for the rest of the stage, and over versions until its breaker's
// cooldown has passed. Then a small read, the probe, is let through before any batch is, so that a rank which still hangs
// costs the probe's deadline and not a batch's. A rank whose bytes nobody else holds is asked all the same: without them
// the version can't be had.

// probeBytes and probeDeadline bound the read that finds out whether a source is back.
const (
	probeBytes    = 4096
	probeDeadline = 2 * time.Second
)

// newHealth keeps the breakers of the source ranks, and tells log and metrics what they do.
func (r *Receiver) newHealth() *rdma.Health {
	cfg := r.cfg.Health
	cfg.Changed = func(s rdma.SourceHealth) {
		switch s.State {
		case rdma.BreakerOpen:
			r.cfg.Logger.Warn("source is left alone", "rank", s.Rank, "until", s.Until, "error", s.Last)
		case rdma.BreakerClosed:
			r.cfg.Logger.Info("source is read again", "rank", s.Rank)
		}
	}
	return rdma.NewHealth(cfg)
}

// meet tells the breakers which life of each rank a version is read from: a rank that was started again begins afresh.
func (r *Receiver) meet(v *messages.Version) {
	for rank := range v.Ranks {
		r.health.Meet(rank, v.Ranks[rank].Endpoint.Incarnation)
	}
	r.countBreakers()
}

// countBreakers tells the metrics how many ranks are in which state.
func (r *Receiver) countBreakers() {
	counts := r.health.Counts()
	for _, s := range []rdma.BreakerState{rdma.BreakerClosed, rdma.BreakerHalfOpen, rdma.BreakerOpen} {
		r.cfg.Metrics.Breakers(r.cfg.Model, tracing.BreakerState(s), counts[s])
	}
}

// doubtful says whether replicas of a rank should be asked before the rank is. It may send the probe that decides it.
func (u *pull) doubtful(ctx context.Context, rank int) bool {
	if u.isSuspect(rank) {
		return true
	}
	open := u.r.health.State(rank) != rdma.BreakerClosed
	if err := u.r.health.Allow(rank); err != nil {
		u.r.cfg.Logger.Debug("source is passed over", "rank", rank, "reason", err)
		return true
	}
	if !open {
		return false
	}
	err := u.probe(ctx, rank)
	if err != nil && ctx.Err() == nil {
		u.failed(rank, err)
	} else {
		u.report(rank, err)
	}
	return err != nil
}

// probe reads the first bytes of a rank's memory and throws them away.
func (u *pull) probe(ctx context.Context, rank int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeDeadline, &stallError{rank, probeDeadline})
	defer cancel()
	one := probeSegment(&u.version.Ranks[rank])
	return u.withMemory(ctx, u.r.edges, func(m *rdma.Memory) error {
		return u.transfer(ctx, rank, map[*rdma.Memory]*landing.Read{m: landing.New([]rdma.Segment{one})})
	})
}

// probeSegment is a piece of the first region that a rank has bytes in: a read of none is refused, and says nothing.
func probeSegment(v *messages.RankVersion) rdma.Segment {
	first := max(0, slices.IndexFunc(v.Layout.Regions, func(nbytes int64) bool { return nbytes > 0 }))
	region := uint32(first)
	if v.Table.Regions != nil {
		region = v.Table.Regions[first]
	}
	return rdma.Segment{Region: region, Run: min(probeBytes, v.Layout.Regions[first]), N: [3]int64{1, 1, 1}}
}

// report tells a rank's breaker how a batch of it ended. An error that is neither nil nor a transport's, such as the end of
// the stage, says nothing of the rank.
func (u *pull) report(rank int, err error) {
	if err != nil && rdma.KindOf(err) == 0 {
		err = context.Canceled
	}
	before := u.r.health.State(rank)
	u.r.health.Report(rank, err)
	u.noteBreaker(rank, before)
}

// failed opens a rank's breaker, and leaves the rank alone for the rest of the stage.
func (u *pull) failed(rank int, err error) {
	u.makeSuspect(rank)
	before := u.r.health.State(rank)
	u.r.health.Suspect(rank, err)
	u.noteBreaker(rank, before)
}

// noteBreaker shows a change of a breaker in trace and metrics.
func (u *pull) noteBreaker(rank int, before rdma.BreakerState) {
	if u.r.health.State(rank) != before {
		u.wire.Event(tracing.EventBreaker, tracing.AttrSource.Int(rank))
		u.r.countBreakers()
	}
}
