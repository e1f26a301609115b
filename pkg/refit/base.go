package refit

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// What did not change is not read again. The arena that serves holds an exact version, the base; a tile with the same
// digest in both versions has the same bytes, and a version that declares what changed since that very base says the same
// of whole sources. Such bytes are copied from the serving arena to the one being staged, after a look whether they are
// still as they were when they came; all others are read and verified as ever. A base that is not known exactly, such as one of other layouts, costs bytes and never correctness.

// base is a version that an arena holds.
type base struct {
	version *messages.Version
	slot    *arena.Slot // the one that serves; it is not written while this stage lasts
}

// remember notes what a sealed slot holds, exactly. Nothing is known of a slot that was handed out since.
func (r *Receiver) remember(slot *arena.Slot, v *messages.Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v == nil {
		delete(r.holds, slot)
		return
	}
	r.holds[slot] = v
}

// base is what serves, nil where it is not known exactly.
func (r *Receiver) base() *base {
	slot := r.arenas.Serving()
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.holds[slot]
	if slot == nil || v == nil || r.cfg.ReadAll {
		return nil
	}
	return &base{version: v, slot: slot}
}

// difference is what a version has in common with its base.
type difference struct {
	table    *plan.Table
	now      digests
	before   digests
	declared map[string]bool // sources that changed, where the version declares it; nil: it doesn't
}

// partial plans what differs from the version that serves. It returns found as it is, and no base, where nothing is saved.
func (r *Receiver) partial(v *messages.Version, found *planned, log *slog.Logger) (*planned, *base, error) {
	b := r.base()
	if b == nil {
		return found, nil, nil
	}
	d := difference{table: found.plan.Table(), now: digests{found.tiles, v}, before: digests{found.tiles, b.version}}
	if err := d.declare(log); err != nil {
		return nil, nil, err
	}
	if !d.any() {
		return found, nil, nil
	}
	part, err := found.plan.Partial(d.unchanged)
	if err != nil {
		return nil, nil, as(PlanRefused, fmt.Errorf("plan what differs from version %s: %w", b.version.Ref(), err))
	}
	if part.Stats().Saved == 0 {
		return found, nil, nil
	}
	if damaged := b.slot.Damaged(kept(part), r.cfg.Workers); len(damaged) > 0 {
		r.cfg.Metrics.Failure(r.cfg.Model, string(CorruptArena))
		log.Warn("what serves is not as it was when it came; nothing is taken over from it, everything is read",
			"class", string(CorruptArena), "key", v.Manifest.Key.String(), "serving", b.version.Ref().String(), "blocks", listSome(damaged))
		return found, nil, nil
	}
	return &planned{plan: part, replicas: found.replicas, tiles: found.tiles}, b, nil
}

// kept lists the regions that a partial plan takes over.
func kept(p *plan.Plan) iter.Seq2[int, arena.Region] {
	return func(yield func(int, arena.Region) bool) {
		for k := range p.Kept() {
			if !yield(k.Dest, region(&k)) {
				return
			}
		}
	}
}

// region is the arena's form of what is kept.
func region(k *plan.Kept) arena.Region {
	return arena.Region{Off: k.Off, Run: k.Run, Shape: k.Shape, Stride: k.Stride}
}

// declare takes over what the version says that it changes, if it says so of what serves.
func (d *difference) declare(log *slog.Logger) error {
	v, before := d.now.version, d.before.version
	if !v.Partial() {
		return nil
	}
	if err := v.StagesOn(before.Ref()); err != nil {
		log.Info("a partial version is read whole", "key", v.Manifest.Key.String(), "reason", err)
		return nil
	}
	if err := v.CheckUnchanged(before); err != nil {
		return as(Torn, err)
	}
	d.declared = map[string]bool{}
	for _, name := range v.Changed() {
		d.declared[name] = true
	}
	return nil
}

// any says whether a look at each source is worth while: in training every tile changes, as a rule.
func (d *difference) any() bool {
	if d.declared != nil {
		return true
	}
	for rank := range d.now.version.Ranks {
		if d.comparable(rank) && anyEqual(d.now.version.Ranks[rank].Tiles.Digests, d.before.version.Ranks[rank].Tiles.Digests) {
			return true
		}
	}
	return false
}

func anyEqual(a, b []uint64) bool {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			return true
		}
	}
	return false
}

// comparable says whether a rank publishes digests of the same tiles in both versions.
func (d *difference) comparable(rank int) bool {
	now, before := d.now.version, d.before.version
	return rank < len(before.Ranks) && now.Ranks[rank].Digests.Layout == before.Ranks[rank].Digests.Layout &&
		now.Ranks[rank].Tiles != nil && before.Ranks[rank].Tiles != nil &&
		len(now.Ranks[rank].Tiles.Digests) == len(before.Ranks[rank].Tiles.Digests) && d.now.index[rank] != nil
}

// unchanged yields the boxes of a source that are the same in both versions: plan.Unchanged.
func (d *difference) unchanged(source int) iter.Seq2[[]int64, []int64] {
	return func(yield func(lo, hi []int64) bool) {
		if d.declared != nil && !d.declared[d.table.Name(source)] {
			shape := d.table.Shape(source)
			yield(make([]int64, len(shape)), shape)
			return
		}
		for _, s := range d.table.Shards(source) {
			if d.comparable(s.Rank) && !d.equalTiles(s.Rank, s.Index, yield) {
				return
			}
		}
	}
}

// equalTiles yields the tiles of one shard that have the same digest in both versions; the shard in one piece if all have.
// Shards without digests have no tile that is known to be equal.
func (d *difference) equalTiles(rank, shard int, yield func(lo, hi []int64) bool) bool {
	row := &d.now.index[rank][shard]
	now, before := d.now.of(rank, shard), d.before.of(rank, shard)
	if now == nil || before == nil {
		return true // no digests of this source, then or now: it may have changed
	}
	lo, hi := corners(row.Box)
	if slices.Equal(now, before) {
		return yield(lo, hi)
	}
	more := true
	_ = tiles.Within(row.Grid, row.Box, lo, hi, func(i int, tlo, thi []int64) error {
		if more && now[i] == before[i] {
			more = yield(tlo, thi)
		}
		return nil
	})
	return more
}

// corners splits lo0,hi0,lo1,hi1,… in two.
func corners(box []int64) (lo, hi []int64) {
	for d := 0; d < len(box); d += 2 {
		lo, hi = append(lo, box[d]), append(hi, box[d+1])
	}
	return lo, hi
}

// keepRegions is how many regions are copied between two looks at the context.
const keepRegions = 256

// keep copies what did not change from the base's arena, on all workers.
func (u *pull) keep(ctx context.Context, p *plan.Plan, b *base) error {
	group, copying := errgroup.WithContext(ctx)
	group.SetLimit(u.r.cfg.Workers)
	copyAll := func(regions []plan.Kept) {
		group.Go(func() error {
			done := u.transform.Work()
			defer done()
			for i := range regions {
				k := &regions[i]
				if err := k.Do(u.slot.Memory(k.Dest).Bytes(), b.slot.Memory(k.Dest).Bytes()); err != nil {
					return as(PlanRefused, fmt.Errorf("keep what version %s has: %w", b.version.Ref(), err))
				}
				u.slot.Came(k.Dest, region(k))
			}
			return nil
		})
	}
	var some []plan.Kept
	for k := range p.Kept() {
		if some = append(some, k); len(some) == keepRegions {
			copyAll(some)
			some = nil
		}
		if copying.Err() != nil {
			break
		}
	}
	copyAll(some)
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
