package refit

import (
	"fmt"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// holder is one shard of one rank.
type holder struct{ rank, shard int }

// replica is a box that several ranks hold.
type replica struct {
	source string
	box    []int64
	by     []holder
}

// findReplicas lists the boxes that more than one shard holds.
func findReplicas(t *plan.Table) []replica {
	var all []replica
	for i := range t.Len() {
		shards := t.Shards(i)
		if len(shards) < 2 {
			continue
		}
		slices.SortStableFunc(shards, func(a, b plan.Shard) int { return slices.Compare(a.Box, b.Box) })
		for lo := 0; lo < len(shards); {
			hi := lo + 1
			for hi < len(shards) && slices.Equal(shards[lo].Box, shards[hi].Box) {
				hi++
			}
			if hi-lo > 1 {
				all = append(all, replicaOf(t.Name(i), shards[lo:hi]))
			}
			lo = hi
		}
	}
	return all
}

func replicaOf(source string, shards []plan.Shard) replica {
	r := replica{source: source, box: shards[0].Box}
	for _, s := range shards {
		r.by = append(r.by, holder{s.Rank, s.Index})
	}
	return r
}

// checkReplicas refuses a version in which two ranks publish different digests for the same box: one of them is wrong,
// and nobody can say which. Ranks that cut a source into other tiles can't be compared.
func checkReplicas(replicas []replica, d *digests) error {
	for _, r := range replicas {
		for i, h := range r.by {
			for _, before := range r.by[:i] {
				if !d.comparable(before, h) {
					continue
				}
				if !slices.Equal(d.of(before.rank, before.shard), d.of(h.rank, h.shard)) {
					return as(ReplicaConflict, fmt.Errorf("source %s box %v: ranks %d and %d publish different digests for it",
						r.source, r.box, before.rank, h.rank))
				}
				break // equal to one is equal to all that it was compared with
			}
		}
	}
	return nil
}

// comparable says whether two shards of one box have digests, of the same tiles.
func (d *digests) comparable(a, b holder) bool {
	return d.of(a.rank, a.shard) != nil && d.of(b.rank, b.shard) != nil &&
		slices.Equal(d.index[a.rank][a.shard].Grid, d.index[b.rank][b.shard].Grid)
}
