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
	p, key := w.ranks[0], w.ranks[0].Key(1)
	mem, err := p.Memory(w.ctx, 1)
	if err != nil {
		w.t.Fatal(err)
	}
	fill(mem.Bytes(), p.cfg.Layout, 1)
	sums, err := p.digest(w.ctx, 1)
	if err != nil {
		w.t.Fatal(err)
	}
	err = w.control.Publish(w.ctx, messages.Publication{
		Key: key, Rank: 0, World: 1, Regions: []uint32{p.regions[1].ID()}, Layout: p.cfg.Layout, Endpoint: p.endpoint,
		Tiles: &messages.Tiles{Digests: change(sums.Digests)},
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
