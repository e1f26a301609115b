package plan_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

var (
	cases = flag.Int("plan.cases", 2000, "random tilings that the planner is compared on with the dense reference")
	first = flag.Uint64("plan.seed", 0, "the first of them")
)

// TestDense compares the planner with copying every element one by one, on random tilings.
func TestDense(t *testing.T) {
	t.Parallel()
	n := *cases
	if testing.Short() {
		n /= 10
	}
	for seed := *first; seed < *first+uint64(n); seed++ {
		c, err := plantest.Random(seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		p := checkCase(t, seed, c, randomOptions(seed))
		if p != nil && seed%4 == 0 {
			checkReroute(t, seed, c, p)
		}
	}
}

func randomOptions(seed uint64) plan.Options {
	r := rand.New(rand.NewPCG(seed, 99))
	o := plan.Options{Classic: r.IntN(6) == 0, MaxSegmentsPerCopy: 1 + r.IntN(10)}
	if r.IntN(2) == 0 {
		o.Costs = plan.CostsFlat
	}
	if r.IntN(3) == 0 {
		o.CostsOf = func(rank int) plan.Costs {
			return []plan.Costs{{}, plan.CostsLocal, plan.CostsFlat, plan.CostsFlatTCP}[(uint64(rank)+seed)%4]
		}
	}
	if r.IntN(2) == 0 {
		o.BatchBytes, o.StagingBytes = 1+r.Int64N(400), 1+r.Int64N(400)
	}
	return o
}

func checkCase(t *testing.T, seed uint64, c *plantest.Case, o plan.Options) *plan.Plan {
	t.Helper()
	p, err := plan.New(c.Table, c.Dests, o)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	got := blank(c)
	if err := c.World.Perform(p, got); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for i := range got {
		if !bytes.Equal(got[i], c.Arenas[i]) {
			t.Fatalf("seed %d: destination %d differs from the dense reference (options %+v)\n%s", seed, i, o, p.Describe())
		}
	}
	if s := p.Stats(); p.Classic() == nil && (s.Needed != c.Needed || s.Wire < s.Needed) {
		t.Fatalf("seed %d: %d bytes needed and %d on the wire, %d are wanted (options %+v)\n%s", seed, s.Needed, s.Wire, c.Needed, o, p.Describe())
	}
	return p
}

func blank(c *plantest.Case) [][]byte {
	var out [][]byte
	for _, a := range c.Arenas {
		out = append(out, bytes.Repeat([]byte{0xEE}, len(a)))
	}
	return out
}

// checkReroute performs one batch by way of other ranks, where they hold enough, and wants the same bytes.
func checkReroute(t *testing.T, seed uint64, c *plantest.Case, p *plan.Plan) {
	t.Helper()
	for i := range p.Batches() {
		bad := p.Batch(i).Rank
		q, err := p.Reroute(i, func(rank int) bool { return rank == bad })
		if err != nil {
			continue
		}
		got := blank(c)
		if err := c.World.Perform(q, got); err != nil {
			t.Fatalf("seed %d, batch %d: %v", seed, i, err)
		}
		for k := range got {
			for b := range got[k] {
				if got[k][b] != 0xEE && got[k][b] != c.Arenas[k][b] {
					t.Fatalf("seed %d, batch %d: byte %d of destination %d differs after rerouting", seed, i, b, k)
				}
			}
		}
		for k := range q.Batches() {
			if q.Batch(k).Rank == bad {
				t.Fatalf("seed %d, batch %d: still reads from rank %d", seed, i, bad)
			}
		}
		if q.Stats().Wire == 0 && p.Classic() == nil { // the classic rule also pulls shards that nobody needs
			t.Fatalf("seed %d, batch %d: rerouted to nothing", seed, i)
		}
	}
}
