package refit

import (
	"slices"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// publishWith publishes and commits version 1 of a world of one rank with other digests than its own.
func (w *world) publishWith(change func([]uint64) []uint64) messages.Key {
	w.t.Helper()
	return w.publishTiles(1, only(1), func(s *messages.Tiles) { s.Digests = change(s.Digests) })
}

// publishTiles is publishMix of a world of one rank, with other tiles than its own.
func (w *world) publishTiles(version uint64, m mix, change func(*messages.Tiles)) messages.Key {
	w.t.Helper()
	p, key := w.ranks[0], w.ranks[0].Key(version)
	mem, err := p.Memory(w.ctx, version)
	if err != nil {
		w.t.Fatal(err)
	}
	fillMix(mem.Bytes(), p.cfg.Layout, m)
	slot := p.slotOf(version)
	sums, err := p.digest(w.ctx, slot)
	if err != nil {
		w.t.Fatal(err)
	}
	change(sums)
	err = w.control.Publish(w.ctx, messages.Publication{
		Key: key, Rank: 0, World: 1, Regions: []uint32{p.regions[slot].ID()}, Layout: p.cfg.Layout, Endpoint: p.endpoint, Tiles: sums,
	})
	if err == nil {
		_, err = w.control.Commit(w.ctx, key, 1)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

func TestDigestsThatDoNotFitTheLayoutAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func([]uint64) []uint64{
		"one too few":  func(d []uint64) []uint64 { return d[:len(d)-1] },
		"one too many": func(d []uint64) []uint64 { return append(slices.Clone(d), 1) },
		"none":         func([]uint64) []uint64 { return []uint64{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{ranks: 1})
			r := w.receiver(nil)
			err := w.fails(r, w.publishWith(change), Torn)
			if !strings.Contains(err.Error(), "rank 0") {
				t.Errorf("the error does not name the rank: %v", err)
			}
			w.servesNothing(r)
		})
	}
}

// TestSourcesWithoutDigestsCountAsUnverified: memory that is read in place may carry digests of a part of its sources. Of
// the others every byte counts as read and not verified, and none is ever taken to be what it was before.
func TestSourcesWithoutDigestsCountAsUnverified(t *testing.T) {
	t.Parallel()
	const down = 32 * 64 * 2 // bytes of model[1]
	w := newWorld(t, worldOptions{ranks: 1})
	rows, _ := tileTable(w.ranks[0].cfg.Layout).Shards()
	bare := func(s *messages.Tiles) {
		s.Bare = []uint32{1}
		clear(s.Digests[rows[1].First:rows[2].First])
	}
	r := w.receiver(nil)
	stats := w.refit(r, w.publishTiles(1, only(1), bare))
	w.serves(r, 1)
	if stats.Brought-stats.Verified != down {
		t.Errorf("%d of %d bytes verified, all but %d expected", stats.Verified, stats.Brought, down)
	}
	// The zeros are equal in both versions, the bytes are not.
	stats = w.refit(r, w.publishTiles(2, only(2, "down"), bare))
	w.servesMix(r, only(2, "down"))
	if stats.Wire != down || stats.Verified != 0 {
		t.Errorf("read %d bytes, %d of them verified; want the %d that may have changed", stats.Wire, stats.Verified, down)
	}

	strict := newWorld(t, worldOptions{ranks: 1})
	r = strict.receiver(func(c *ReceiverConfig) { c.VerifyFloor = 1 })
	if err := strict.fails(r, strict.publishTiles(1, only(1), bare), Unverified); !strings.Contains(err.Error(), "bytes brought were verified") {
		t.Errorf("the error does not say how many bytes: %v", err)
	}
	strict.servesNothing(r)
	all := func(*messages.Tiles) {}
	strict.refit(r, strict.publishTiles(2, only(1), all))
	strict.servesMix(r, only(1))
}

// TestWhatIsNotDigestedIsKnownByItsPublicationAlone: an arena that holds a part of a version goes on with it only if the
// rest is of the same bytes, which digests show where there are some.
func TestWhatIsNotDigestedIsKnownByItsPublicationAlone(t *testing.T) {
	t.Parallel()
	version := func(table byte, tiles *messages.Tiles) *messages.Version {
		r := messages.RankVersion{Tiles: tiles}
		r.Digests.Table[0] = table
		return &messages.Version{Ranks: []messages.RankVersion{r}}
	}
	for name, c := range map[string]struct {
		tiles *messages.Tiles
		same  bool
	}{
		"all digests":  {&messages.Tiles{Digests: []uint64{1, 2}}, true},
		"some digests": {&messages.Tiles{Digests: []uint64{1, 0}, Bare: []uint32{1}}, false},
		"no digests":   {nil, false},
	} {
		if got := contentOf(version(1, c.tiles)) == contentOf(version(2, c.tiles)); got != c.same {
			t.Errorf("%s: published twice, taken for the same: %v", name, got)
		}
		once, again := contentOf(version(1, c.tiles)), contentOf(version(1, c.tiles))
		if once != again {
			t.Errorf("%s: published once, and not recognised", name)
		}
	}
}

// replicated makes digests of one box [0, 8) that several ranks hold; a rank may cut it otherwise or publish nothing.
func replicated(grids []int64, sums ...[]uint64) ([]replica, *digests) {
	d := &digests{version: &messages.Version{}}
	r := replica{source: "w", box: []int64{0, 8}}
	for rank, s := range sums {
		v := messages.RankVersion{}
		if s != nil {
			v.Tiles = &messages.Tiles{Digests: s}
		}
		d.version.Ranks = append(d.version.Ranks, v)
		d.index = append(d.index, []tiles.Shard{{Grid: grids[rank : rank+1], Box: r.box}})
		r.by = append(r.by, holder{rank, 0})
	}
	return []replica{r}, d
}

func TestReplicasAreComparedWhereTheyCanBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		grids    []int64
		sums     [][]uint64
		conflict bool
	}{
		{"equal", []int64{4, 4}, [][]uint64{{1, 2}, {1, 2}}, false},
		{"different", []int64{4, 4}, [][]uint64{{1, 2}, {1, 3}}, true},
		{"the first has none", []int64{4, 4, 4}, [][]uint64{nil, {1, 2}, {1, 3}}, true},
		{"other tiles", []int64{4, 8}, [][]uint64{{1, 2}, {7}}, false},
		{"other tiles between", []int64{4, 8, 4}, [][]uint64{{1, 2}, {7}, {1, 3}}, true},
		{"other tiles first", []int64{8, 4, 4}, [][]uint64{{7}, {1, 2}, {1, 3}}, true},
	} {
		rs, d := replicated(c.grids, c.sums...)
		if err := checkReplicas(rs, d); (err != nil) != c.conflict {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
