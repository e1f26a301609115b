package messages_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// trained is a run of two ranks with one whole version, on which partial ones stand.
type trained struct {
	*messages.Control
	run  uint64
	base messages.Ref
}

func startTrained(t *testing.T) *trained {
	t.Helper()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	run := takeRun(t, c, "job", 2).Run
	return &trained{Control: c, run: run, base: publishAll(t, c, messages.Key{Run: run, Version: 1}, 2).Ref()}
}

// commit publishes both ranks' parts of a version, as edited, and commits it.
func (r *trained) commit(t *testing.T, version uint64, edit func(rank int, p *messages.Publication)) (*messages.Version, error) {
	t.Helper()
	ctx := natstest.Context(t, 20*time.Second)
	key := messages.Key{Run: r.run, Version: version}
	for rank := range 2 {
		p := publication(key, rank, 2)
		edit(rank, &p)
		if err := r.Publish(ctx, p); err != nil {
			return nil, err
		}
	}
	if _, err := r.Commit(ctx, key, 2); err != nil {
		return nil, err
	}
	return r.Assemble(ctx, key)
}

func TestPartialVersion(t *testing.T) {
	t.Parallel()
	r := startTrained(t)
	whole, err := r.Assemble(natstest.Context(t, 10*time.Second), r.base.Key)
	if err != nil || whole.Partial() || whole.Changed() != nil || whole.Ref() != r.base {
		t.Fatalf("the whole version: %+v, %v", whole, err)
	}
	// Rank 0 names what changed; rank 1 finds it by its digests: publication gives the
	// first tile, which is of embed.weight, another digest with each version.
	v, err := r.commit(t, 2, func(rank int, p *messages.Publication) {
		p.Base = &r.base
		if rank == 0 {
			p.Changed = []string{"head.weight", "embed.weight"}
		} else {
			p.BaseTiles = publication(r.base.Key, 1, 2).Tiles
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !v.Partial() || *v.Manifest.Base != r.base {
		t.Errorf("stands on %v, want %v", v.Manifest.Base, r.base)
	}
	for rank, want := range [][]string{{"embed.weight", "head.weight"}, {"embed.weight"}} {
		if got := v.Ranks[rank].Changed(); !slices.Equal(got, want) {
			t.Errorf("rank %d changed %q, want %q", rank, got, want)
		}
	}
	if got := v.Changed(); !slices.Equal(got, []string{"embed.weight", "head.weight"}) {
		t.Errorf("changed %q", got)
	}
	if got, ok := v.Since(whole); !ok || !slices.Equal(got, []string{"embed.weight"}) {
		t.Errorf("by digests changed %q, %v", got, ok)
	}
	if err := v.CheckUnchanged(whole); err != nil {
		t.Error(err)
	}
	if err := errors.Join(v.StagesOn(r.base), whole.StagesOn(messages.Ref{}), whole.StagesOn(v.Ref())); err != nil {
		t.Error(err)
	}
}

// The sender's base moved on, and a delta was put on top of another version.
func TestPartialVersionIsStagedOnItsExactBaseOnly(t *testing.T) {
	t.Parallel()
	r := startTrained(t)
	v, err := r.commit(t, 5, func(_ int, p *messages.Publication) { p.Base = &r.base })
	if err != nil {
		t.Fatal(err)
	}
	another := r.base
	another.Manifest[0] ^= 1 // the same step, trained once more
	for what, serving := range map[string]messages.Ref{
		"nothing":                   {},
		"another version":           {Key: messages.Key{Run: r.run, Version: 4}, Manifest: r.base.Manifest},
		"the step, otherwise":       another,
		"the step, nothing more":    {Key: r.base.Key},
		"the partial version again": v.Ref(),
	} {
		err := v.StagesOn(serving)
		var base *messages.BaseError
		if !errors.Is(err, messages.ErrBase) || !errors.As(err, &base) || base.Base != r.base || base.Serving != serving {
			t.Errorf("on %s: %v", what, err)
		}
	}
}

func TestPartialVersionsAreRefused(t *testing.T) {
	t.Parallel()
	r := startTrained(t)
	ctx := natstest.Context(t, 20*time.Second)
	other := r.base
	other.Manifest[3]++
	never := messages.Ref{Key: messages.Key{Run: r.run, Version: 7}, Manifest: r.base.Manifest}
	if err := r.Abandon(ctx, never.Key, "a drill"); err != nil {
		t.Fatal(err)
	}
	version := uint64(10)
	for what, c := range map[string]struct {
		edit func(rank int, p *messages.Publication)
		want error  // nil: any
		text string // of the error
	}{
		"ranks with two bases": {func(rank int, p *messages.Publication) {
			if rank == 1 {
				p.Base = &r.base
			}
		}, messages.ErrContradiction, "rank 1"},
		"one step, two contents": {func(rank int, p *messages.Publication) {
			p.Base = []*messages.Ref{&r.base, &other}[rank]
		}, messages.ErrContradiction, "rank 1"},
		"a base that is committed otherwise": {func(_ int, p *messages.Publication) { p.Base = &other }, messages.ErrContradiction, other.String()},
		"a base that was abandoned":          {func(_ int, p *messages.Publication) { p.Base = &never }, messages.ErrAbandoned, "never committed"},
		"a base that is newer": {func(_ int, p *messages.Publication) {
			p.Base = &messages.Ref{Key: p.Key, Manifest: r.base.Manifest}
		}, messages.ErrMalformed, `"base"`},
		"a base by its key alone": {func(_ int, p *messages.Publication) { p.Base = &messages.Ref{Key: r.base.Key} }, messages.ErrMalformed, `"base"`},
		"changes without a base":  {func(_ int, p *messages.Publication) { p.Changed = []string{"embed.weight"} }, nil, "without a base"},
		"a change that is hidden": {func(_ int, p *messages.Publication) {
			p.Base, p.Changed, p.BaseTiles = &r.base, []string{"head.weight"}, publication(r.base.Key, p.Rank, 2).Tiles
		}, nil, `"embed.weight" of rank 0 is said not to have changed`},
		"digests of another layout": {func(_ int, p *messages.Publication) {
			p.Base, p.BaseTiles = &r.base, &messages.Tiles{Digests: []uint64{1}}
		}, messages.ErrContradiction, "the layout has 2 tiles"},
		"no digests of its own": {func(_ int, p *messages.Publication) {
			p.Base, p.BaseTiles, p.Tiles = &r.base, p.Tiles, nil
		}, nil, "to compare"},
		"a bare source that the layout doesn't have": {func(_ int, p *messages.Publication) { p.Tiles.Bare = []uint32{3} }, messages.ErrContradiction, "source 3 of 3"},
		"too few digests": {func(_ int, p *messages.Publication) { p.Tiles.Digests = p.Tiles.Digests[:1] }, messages.ErrContradiction, "2 tiles"},
	} {
		version++
		_, err := r.commit(t, version, c.edit)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Of a source without digests nobody can say that it did not change: it counts as changed where the digests are to tell,
// and a publisher that names its changes is believed about it.
func TestBareSourcesAndTheirChanges(t *testing.T) {
	t.Parallel()
	r := startTrained(t)
	whole, err := r.Assemble(natstest.Context(t, 10*time.Second), r.base.Key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.commit(t, 2, func(rank int, p *messages.Publication) {
		p.Base = &r.base
		p.Tiles.Bare = []uint32{1} // head.weight
		if rank == 0 {
			p.Changed = []string{"embed.weight"}
			return
		}
		p.BaseTiles = publication(r.base.Key, rank, 2).Tiles
		p.BaseTiles.Bare = p.Tiles.Bare
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank, want := range [][]string{{"embed.weight"}, {"embed.weight", "head.weight"}} {
		if got := v.Ranks[rank].Changed(); !slices.Equal(got, want) {
			t.Errorf("rank %d changed %q, want %q", rank, got, want)
		}
		if tl := v.Ranks[rank].Tiles; !tl.Carries(0) || tl.Carries(1) {
			t.Errorf("rank %d: bare are %v", rank, tl.Bare)
		}
	}
	if err := v.CheckUnchanged(whole); err != nil {
		t.Errorf("what can't be compared: %v", err)
	}
	if names, ok := v.Since(whole); ok {
		t.Errorf("what changed can't be told by digests, and is: %q", names)
	}
}

// A publisher that forgets to name what changed is found by whoever still has the
// base's digests.
func TestHiddenChangeIsFoundByTheReceiver(t *testing.T) {
	t.Parallel()
	r := startTrained(t)
	whole, err := r.Assemble(natstest.Context(t, 10*time.Second), r.base.Key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.commit(t, 2, func(rank int, p *messages.Publication) {
		p.Base = &r.base
		if rank == 0 {
			p.Changed = []string{"embed.weight"}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	err = v.CheckUnchanged(whole)
	var which *messages.RankError
	if !errors.Is(err, messages.ErrContradiction) || !errors.As(err, &which) || !slices.Equal(which.Ranks, []int{1}) || !strings.Contains(err.Error(), `"embed.weight"`) {
		t.Errorf("rank 1 changed in secret: %v", err)
	}
}

// A base may be withdrawn: receivers have its bytes.
func TestBaseMayBeRetired(t *testing.T) {
	t.Parallel()
	r := startTrained(t)
	for rank := range 2 {
		if err := r.Retire(natstest.Context(t, 10*time.Second), r.base.Key, rank); err != nil {
			t.Fatal(err)
		}
	}
	v, err := r.commit(t, 2, func(_ int, p *messages.Publication) { p.Base = &r.base })
	if err != nil || v.StagesOn(r.base) != nil {
		t.Errorf("%v, %v", v, err)
	}
}

// NTiles and the tiles of package tiles are counted by two pieces of code, which must agree.
func TestTilesAreCountedAsTheyAreHashed(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 5))
	for range 500 {
		shape, grid, box := []int64{}, []int64{}, []int64{}
		for range rng.IntN(4) {
			n := rng.Int64N(40)
			lo := rng.Int64N(n + 1)
			shape, grid, box = append(shape, n), append(grid, 1+rng.Int64N(n+2)), append(box, lo, lo+rng.Int64N(n-lo+1))
		}
		l := &messages.Layout{
			Names: []string{"x"}, DTypes: []messages.DType{messages.U8}, ShapeEnd: []uint32{uint32(len(shape))}, Shapes: shape, Grid: grid,
			Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: box,
		}
		if got, want := l.NTiles(), tiles.Count(grid, box); got != want {
			t.Errorf("box %v of shape %v, grid %v: %d tiles, want %d", box, shape, grid, got, want)
		}
	}
}
