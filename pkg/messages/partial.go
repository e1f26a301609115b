package messages

import (
	"context"
	"fmt"
	"slices"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Partial versions. A publisher names the exact base and what changed since; the commit
// checks that all ranks mean the same base; a receiver stages the difference only when
// it serves that base (StagesOn), and may check that what is said not to have changed
// has the base's digests (CheckUnchanged).

// changed makes of a publication's claims the indices of the sources that changed.
func (p *Publication) changed() ([]uint32, error) {
	if p.Base == nil {
		if len(p.Changed) > 0 || p.BaseTiles != nil {
			return nil, fmt.Errorf("changes are named without a base version")
		}
		return nil, nil
	}
	differs, unknown, err := p.differs()
	if err != nil {
		return nil, err
	}
	if len(p.Changed) == 0 {
		for i := range unknown { // without digests nobody can say that it did not change
			differs[i] = differs[i] || unknown[i]
		}
		return indicesOf(differs), nil
	}
	named, err := p.named()
	if err != nil {
		return nil, err
	}
	for i, d := range differs {
		if d && !named[i] {
			return nil, fmt.Errorf("source %q of rank %d is said not to have changed, but its tiles differ from those of base %s", p.Layout.Names[i], p.Rank, p.Base)
		}
	}
	return indicesOf(named), nil
}

// named finds the sources that Changed names.
func (p *Publication) named() ([]bool, error) {
	want := make(map[string]bool, len(p.Changed))
	for _, name := range p.Changed {
		want[name] = true
	}
	named := make([]bool, len(p.Layout.Names))
	for i, name := range p.Layout.Names {
		named[i] = want[name]
		delete(want, name)
	}
	for name := range want {
		return nil, fmt.Errorf("changed source %q is not in the layout of rank %d", name, p.Rank)
	}
	return named, nil
}

// differs says of each source whether its digests are other ones than the base's; nil
// when those of the base are not given.
func (p *Publication) differs() (differs, unknown []bool, err error) {
	if p.BaseTiles == nil {
		return nil, nil, nil
	}
	if p.Tiles == nil {
		return nil, nil, fmt.Errorf("tile digests of the base, but none of rank %d's version %s, to compare", p.Rank, p.Key)
	}
	return diffTiles(p.Layout, p.BaseTiles, p.Tiles)
}

func indicesOf(set []bool) []uint32 {
	var out []uint32
	for i, in := range set {
		if in {
			out = append(out, uint32(i))
		}
	}
	return out
}

// diffTiles says of each source of a layout whether any of its tiles differs, and of which that is unknown because it
// carries no digests in one of the two; unknown is nil where all do.
func diffTiles(l *Layout, before, now *Tiles) (differs, unknown []bool, err error) {
	if n := l.NTiles(); len(before.Digests) != n || len(now.Digests) != n {
		return nil, nil, fmt.Errorf("%d and %d tile digests, the layout has %d tiles: %w", len(before.Digests), len(now.Digests), n, ErrContradiction)
	}
	differs = make([]bool, len(l.Names))
	if len(before.Bare)+len(now.Bare) > 0 {
		unknown = make([]bool, len(l.Names))
		for i := range unknown {
			unknown[i] = !before.Carries(uint32(i)) || !now.Carries(uint32(i))
		}
	}
	at := 0 // first tile of the shard
	l.eachShard(func(shard int, box []int64) {
		n := l.shardTiles(int(l.Source[shard]), box)
		source := l.Source[shard]
		if (unknown == nil || !unknown[source]) && !slices.Equal(before.Digests[at:at+n], now.Digests[at:at+n]) {
			differs[source] = true
		}
		at += n
	})
	return differs, unknown, nil
}

// Ref names the assembled version exactly. A receiver notes it when it installs the version.
func (v *Version) Ref() Ref { return Ref{Key: v.Manifest.Key, Manifest: v.Digest} }

// Partial says whether the version names a base.
func (v *Version) Partial() bool { return v.Manifest.Base != nil }

// Changed lists the names of the sources that changed since the base in any rank,
// sorted; nil when the version is whole.
func (v *Version) Changed() []string {
	if !v.Partial() {
		return nil
	}
	names := []string{}
	for i := range v.Ranks {
		names = append(names, v.Ranks[i].Changed()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Changed lists the names of this rank's sources that changed since the manifest's
// base, in the order of its layout; nil when the version is whole.
func (r *RankVersion) Changed() []string {
	if r.Table.Base == nil {
		return nil
	}
	names := make([]string, len(r.Table.Changed))
	for i, s := range r.Table.Changed {
		names[i] = r.Layout.Names[s]
	}
	return names
}

// StagesOn says whether the version's difference may be staged on top of what is
// served: nil when it may, or when the version is whole; else a BaseError.
func (v *Version) StagesOn(serving Ref) error {
	if protocol.MayStageOn(refOrNone(v.Manifest.Base), serving) {
		return nil
	}
	return &BaseError{Key: v.Manifest.Key, Base: *v.Manifest.Base, Serving: serving}
}

// BaseError is an ErrBase with its circumstances.
type BaseError struct {
	Key     Key // the partial version
	Base    Ref // what it stands on
	Serving Ref // what is served; zero: nothing, or nothing that is known exactly
}

func (e *BaseError) Error() string {
	if e.Serving.IsZero() {
		return fmt.Sprintf("version %s stands on %s, and no version is served", e.Key, e.Base)
	}
	return fmt.Sprintf("version %s stands on %s, and %s is served", e.Key, e.Base, e.Serving)
}

// Is says that a BaseError is an ErrBase.
func (e *BaseError) Is(target error) bool { return target == ErrBase }

// Since lists the sources whose tile digests differ from another version's, in any rank,
// sorted. False when digests can't tell: a rank has none, or not of all sources, or another layout than then.
func (v *Version) Since(other *Version) (names []string, ok bool) {
	if len(v.Ranks) != len(other.Ranks) {
		return nil, false
	}
	names = []string{}
	for i := range v.Ranks {
		differs, unknown, ok := v.Ranks[i].since(&other.Ranks[i])
		if !ok || unknown != nil {
			return nil, false
		}
		for s, d := range differs {
			if d {
				names = append(names, v.Ranks[i].Layout.Names[s])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

func (r *RankVersion) since(o *RankVersion) (differs, unknown []bool, ok bool) {
	if r.Digests.Layout != o.Digests.Layout || r.Tiles == nil || o.Tiles == nil {
		return nil, nil, false
	}
	differs, unknown, err := diffTiles(r.Layout, o.Tiles, r.Tiles)
	return differs, unknown, err == nil
}

// CheckUnchanged proves from the digests that a partial version changes nothing but what
// it says, against its base as it was assembled. Ranks and sources that have no digests, or
// another layout than in the base, can't be compared and pass. ErrContradiction names the rank
// and a source; then the version must not be staged as a difference.
func (v *Version) CheckUnchanged(base *Version) error {
	if err := v.StagesOn(base.Ref()); err != nil {
		return err
	}
	for rank := range min(len(v.Ranks), len(base.Ranks)) {
		r := &v.Ranks[rank]
		differs, _, ok := r.since(&base.Ranks[rank])
		if !ok || !v.Partial() {
			continue
		}
		for _, i := range r.Table.Changed {
			differs[i] = false
		}
		if i := slices.Index(differs, true); i >= 0 {
			return &RankError{Op: "compare", Key: v.Manifest.Key, Ranks: []int{rank}, Err: fmt.Errorf(
				"source %q is said not to have changed, but its tiles differ from those of base %s: %w", r.Layout.Names[i], base.Ref(), ErrContradiction)}
		}
	}
	return nil
}

func refOrNone(r *Ref) Ref {
	if r == nil {
		return Ref{}
	}
	return *r
}

// checkBaseAtCommit refuses a base that was never committed, or was committed with
// another content than the ranks mean, as far as the stream still knows: a base may
// have been withdrawn since, receivers have its bytes.
func (c *Control) checkBaseAtCommit(ctx context.Context, base *Ref) error {
	if base == nil {
		return nil
	}
	in := protocol.Intent{Verb: protocol.ReadLeader, Place: protocol.Place{Kind: protocol.KindCommit, Key: base.Key}}
	res := c.perform(ctx, in)
	for ; res.Outcome != protocol.OK; res = c.perform(ctx, in) {
		if res.Outcome == protocol.Refused {
			return fmt.Errorf("read base version %s: %w", base, res.Err)
		}
		pause(ctx, retryDelay)
		if ctx.Err() != nil {
			return fmt.Errorf("read base version %s: %w", base, gaveUp(ctx, res.Err))
		}
	}
	if len(res.Items) == 0 {
		return nil
	}
	switch body := res.Items[0].Body; {
	case body.Class == protocol.ClassAbandoned:
		return fmt.Errorf("base version %s was never committed: %w", base, ErrAbandoned)
	case body.Class == protocol.ClassManifest && body.Digest != base.Manifest:
		return fmt.Errorf("base version %s is committed with manifest %s: %w", base, body.Digest.Short(), ErrContradiction)
	}
	return nil
}
