package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// TestSelectors: which copies each way of restricting a plan keeps.
func TestSelectors(t *testing.T) {
	t.Parallel()
	names := []string{"model.layers.0.mlp.experts.0.up.weight", "model.layers.0.mlp.experts.3.up.weight", "model.layers.11.norm.weight", "model.embed.weight"}
	w := &plantest.World{}
	d := plan.Dest{}
	for i, n := range names {
		w.AddShard(0, n, plan.U8, []int64{8, 4}, []int64{0, 8, 0, 4}, nil, 32)
		d.Params = append(d.Params, plan.Param{Name: fmt.Sprintf("p%d", i), DType: plan.U8, Shape: []int64{4, 4}})
		d.Copies = append(d.Copies, rows(n, i, 4, 8, 4, 0))
	}
	d.LayOut(0)
	tab := merged(t, w)
	for _, c := range []struct {
		name string
		s    plan.Selector
		want []int
	}{
		{"globs of sources and parameters", plan.SelectGlobs([]string{"*embed*", "p1"}), []int{1, 3}},
		{"a broken glob", plan.SelectGlobs([]string{"["}), nil},
		{"layers", plan.SelectLayers([]int{0}), []int{0, 1}},
		{"experts", plan.SelectExperts([]int{3, 7}), []int{1}},
		{"both", plan.SelectAll(plan.SelectLayers([]int{0}), plan.SelectExperts([]int{0})), []int{0}},
	} {
		dests := []plan.Dest{d}
		keep := c.s(tab, dests)
		var got []int
		for i := range d.Copies {
			if keep(0, &d.Copies[i]) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: keeps %v, expected %v", c.name, got, c.want)
		}
		p, err := plan.New(tab, dests, plan.Options{Select: keep})
		if err != nil || p.Stats().Wire != int64(16*len(c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
