package refit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// What an earlier attempt at a version, or an earlier life of this receiver, has brought into an arena is verified there by
// digest and not read again. The digests are those that were noted beside the arena when the bytes came, verified (package
// arena); so they also cover what was cast, and hold when the version's publishers are gone.

// contentOf identifies what a version consists of: the same bytes at the same places, whoever serves them from where. Where
// not all sources carry digests only the publication itself can: a trainer that went back may publish a step again, with
// other bytes and the same digests of the rest.
func contentOf(v *messages.Version) (c arena.Content) {
	h := sha256.New()
	for i := range v.Ranks {
		r := &v.Ranks[i]
		h.Write(r.Digests.Layout[:])
		h.Write(r.Digests.Tiles[:])
		if r.Tiles == nil || len(r.Tiles.Bare) > 0 {
			h.Write(r.Digests.Table[:])
		}
	}
	return arena.Content(h.Sum(nil))
}

func (r *Receiver) labelOf(key messages.Key) arena.Version {
	return arena.Version{Model: r.cfg.Model, Run: key.Run, Version: key.Version}
}

// trust verifies what serves by name when the receiver starts. What is damaged goes on serving, since nothing better is
// there, and is replaced by the next version that is staged, the same one included.
func (r *Receiver) trust() {
	begun := time.Now()
	found, noted := r.arenas.Verify(r.cfg.Workers)
	switch {
	case r.arenas.Serving() == nil:
	case len(found.Damaged) > 0:
		r.distrusted = true
		err := fmt.Errorf("%d blocks of what serves are not as they were when they came; the version is staged anew: %s",
			len(found.Damaged), listSome(found.Damaged))
		r.noteFailure(&Failure{Class: CorruptArena, Op: "verify", Model: r.cfg.Model, Key: r.serving, Err: err})
	case !noted:
		r.cfg.Logger.Warn("what serves can't be verified: nothing was noted of its bytes", "key", r.serving.String())
	default:
		r.verified = true
		r.cfg.Logger.Info("what serves is as it was when it came", "key", r.serving.String(), "bytes", found.Nbytes, "took", time.Since(begun))
	}
}

// listSome names the first few of a list.
func listSome(list []string) string {
	const some = 3
	if len(list) <= some {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(list[:some], "; "), len(list)-some)
}

// recall finds out once after a start what exactly serves, so that what has not changed since need not be read. It is
// the version that was verified by trust, if its publishers still say so.
func (r *Receiver) recall(ctx context.Context) {
	slot := r.arenas.Serving()
	if !r.verified || slot == nil || r.cfg.ReadAll {
		return
	}
	r.verified = false
	key := r.Serving()
	v, err := r.cfg.Control.Assemble(ctx, key)
	if err != nil || !slot.About(r.labelOf(key), contentOf(v)) {
		r.cfg.Logger.Info("the next version is read whole: what serves is not known tile by tile any more", "key", key.String(), "error", err)
		return
	}
	r.remember(slot, v)
}

// acquire takes an arena for a version, with what it holds of it already.
func (r *Receiver) acquire(s *Staged, v *messages.Version) (whole bool, err error) {
	slot, found, err := r.arenas.Resume(r.labelOf(s.key), contentOf(v), r.cfg.Workers)
	if err != nil {
		return false, as(NoRoom, err)
	}
	s.slot = slot
	r.remember(slot, nil)
	if len(found.Damaged) > 0 {
		r.cfg.Metrics.Failure(r.cfg.Model, string(CorruptArena))
		r.cfg.Logger.Warn("blocks of an arena are not as they were when they came; they are read again",
			"class", string(CorruptArena), "key", s.key.String(), "blocks", listSome(found.Damaged))
	}
	if found.Nbytes > 0 {
		r.cfg.Logger.Info("an arena holds bytes of the version already", "key", s.key.String(), "bytes", found.Nbytes, "whole", found.Whole)
	}
	return found.Whole, nil
}

// takeOver stages a version that an arena holds, whole and as it came: nothing is read. The floor may have been lower then.
func (r *Receiver) takeOver(s *Staged, v *messages.Version, found *planned) error {
	s.stats.Resumed = s.stats.Needed
	checks := newVerifier(v, found)
	var all share
	for i := range found.plan.Batches() {
		all.add(checks.bytesOf(found.plan, i))
	}
	if err := all.atLeast(r.cfg.VerifyFloor); err != nil {
		r.arenas.Release(s.slot)
		return err
	}
	const reason = "an arena held the version already, verified"
	for _, stage := range []tracing.Stage{tracing.WireTransfer, tracing.ReceiveSync, tracing.Transformation} {
		s.cycle.NotApplicable(stage, reason)
	}
	s.cycle.SetSizes(s.stats.sizes())
	r.remember(s.slot, v)
	return nil
}

// missing is queuesOf without the batches whose bytes the slot has.
func (u *pull) missing(p *plan.Plan) map[int][]int {
	queues := map[int][]int{}
	for i := range p.Batches() {
		b := p.Batch(i)
		if u.has(p, i) {
			nbytes, digested := u.checks.bytesOf(p, i)
			u.sums.resumed.Add(nbytes)
			u.sums.vouched.Add(digested)
			continue
		}
		queues[b.Rank] = append(queues[b.Rank], i)
	}
	return queues
}

// bytesOf counts what a batch brings of shards, and what of it has digests of its publisher, which it was compared with when
// it came.
func (c *verifier) bytesOf(p *plan.Plan, i int) (sum, digested int64) {
	for piece := range p.Pieces(i) {
		nbytes := c.nbytes(piece)
		sum += nbytes
		if len(c.of(piece.Rank, piece.Shard)) > 0 {
			digested += nbytes
		}
	}
	return sum, digested
}

// eachRegion yields where a batch's bytes are in the end.
func eachRegion(p *plan.Plan, i int, do func(dest int, r arena.Region) bool) {
	for s := range p.Segments(i) {
		r := arena.Region{Off: s.Dst, Run: s.Run, Shape: s.N[:], Stride: s.DstStride[:]}
		if s.Dest != plan.Staging && !do(s.Dest, r) {
			return
		}
	}
	for s := range p.Scatters(i) {
		if !do(s.Dest, arena.Region{Off: s.Dst, Run: s.To.Size(), Shape: s.Shape, Stride: s.DstStride}) {
			return
		}
	}
}

func (u *pull) has(p *plan.Plan, i int) bool {
	has := true
	eachRegion(p, i, func(dest int, r arena.Region) bool { has = u.slot.Has(dest, r); return has })
	return has
}

// came notes that a batch is in the arena, verified. To digest its blocks is part of what verifying costs.
func (u *pull) came(p *plan.Plan, i int) {
	done := u.verify.Work()
	defer done()
	eachRegion(p, i, func(dest int, r arena.Region) bool { u.slot.Came(dest, r); return true })
}
