package plan_test

import (
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// columnsOn makes ranks each of which holds some whole [256, 256] bytes, and a destination that wants a column
// of eight bytes of each: 256 short runs.
func columnsOn(ranks map[string][]int) (*plantest.World, plan.Dest) {
	w := &plantest.World{}
	d := plan.Dest{}
	for _, name := range []string{"a", "b", "c"} {
		for _, r := range ranks[name] {
			w.AddShard(r, name, plan.U8, []int64{256, 256}, []int64{0, 256, 0, 256}, nil, 256*256)
		}
		if len(ranks[name]) > 0 {
			d.Copies = append(d.Copies, plan.Copy{
				Source: name, Ops: []plan.Op{plantest.Op("narrow", 1, 8, 8)}, Param: len(d.Params), Shape: []int64{256, 8}, Stride: []int64{8, 1},
			})
			d.Params = append(d.Params, plan.Param{Name: name, DType: plan.U8, Shape: []int64{256, 8}})
		}
	}
	d.LayOut(0)
	return w, d
}

// shapes returns how each parameter of destination 0 is read, and from which ranks.
func shapes(t *testing.T, p *plan.Plan, params ...string) (how []string, ranks []int) {
	t.Helper()
	for _, name := range params {
		e, err := p.Explain(0, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range e.Copies[0].Reads {
			how, ranks = append(how, r.Shape), append(ranks, r.Rank)
		}
	}
	return how, ranks
}

// TestCostsOfEachRank: one receiver reaches rank 0 by descriptors, rank 1 by memory. Equal columns are read
// whole from the one and exactly from the other.
func TestCostsOfEachRank(t *testing.T) {
	t.Parallel()
	w, d := columnsOn(map[string][]int{"a": {0}, "b": {1}, "c": {2}})
	tab := merged(t, w)
	p, err := plan.New(tab, []plan.Dest{d}, plan.Options{CostsOf: func(rank int) plan.Costs {
		return []plan.Costs{plan.CostsFlat, plan.CostsLocal, {}}[rank] // none for rank 2: CostsStrided
	}})
	if err != nil {
		t.Fatal(err)
	}
	how, _ := shapes(t, p, "a", "b", "c")
	if got := strings.Join(how, "; "); got != "spanning; exact; exact" {
		t.Errorf("read as %s", got)
	}
}

// TestCostsChooseAmongReplicas: of equal shards those serve that cost less, and the others when those fail.
func TestCostsChooseAmongReplicas(t *testing.T) {
	t.Parallel()
	w, d := columnsOn(map[string][]int{"a": {0, 1, 2}})
	tab := merged(t, w)
	cheap := 1
	o := plan.Options{CostsOf: func(rank int) plan.Costs {
		if rank == cheap {
			return plan.CostsLocal
		}
		return plan.CostsStrided
	}}
	p, err := plan.New(tab, []plan.Dest{d}, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, from := shapes(t, p, "a"); len(from) != 1 || from[0] != 1 {
		t.Errorf("read from ranks %v, expected the cheap one", from)
	}
	q, err := p.Reroute(0, func(rank int) bool { return rank == 1 })
	if err != nil || q.Batch(0).Rank == 1 {
		t.Errorf("rerouted to rank 1, or not at all: %v", err)
	}
	cheap = 2 // what Rebind must notice although no layout changed
	again, err := p.Rebind(merged(t, w))
	if err != nil {
		t.Fatal(err)
	}
	if _, from := shapes(t, again, "a"); len(from) != 1 || from[0] != 2 {
		t.Errorf("after the costs changed it is read from ranks %v", from)
	}
}
