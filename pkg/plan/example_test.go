package plan_test

import (
	"errors"
	"fmt"
	"iter"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// layoutOf is one rank that holds rows [lo, hi) of a 4 by 600 tensor of bf16.
func layoutOf(rank int, lo, hi int64) *plan.Layout {
	return &plan.Layout{
		Rank: rank, Regions: []int64{(hi - lo) * 1200},
		Names: []string{"w"}, DTypes: []plan.DType{plan.BF16}, ShapeEnd: []uint32{2}, Shapes: []int64{4, 600},
		Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: []int64{lo, hi, 0, 600},
	}
}

// columnsOf is a destination that wants 300 of the 600 columns, from the given one on.
func columnsOf(first int64) plan.Dest {
	return plan.Dest{
		Params: []plan.Param{{Name: "half", DType: plan.BF16, Shape: []int64{4, 300}}},
		Copies: []plan.Copy{{
			Source: "w", Ops: []plan.Op{{Name: "narrow", Args: []plan.Arg{{Int: 1}, {Int: first}, {Int: 300}}}},
			Param: 0, Shape: []int64{4, 300}, Stride: []int64{300, 1},
		}},
	}
}

// Two trainer ranks hold rows, a rollout rank needs columns: each rank is read with one strided segment.
func ExampleNew() {
	table, err := plan.Merge([]*plan.Layout{layoutOf(0, 0, 2), layoutOf(1, 2, 4)})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := plan.New(table, []plan.Dest{columnsOf(300)}, plan.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(p.Describe())
	// Output:
	// plan: 2 batches from 2 ranks, 2400 bytes for 2400 needed, 2 segments, 4 runs, staging 0
	// batch 0: rank 0, 1200 bytes, 1 segments, staging 0
	//   read region 0 @600 -> 0 @0 run 600 x2(1200,600)
	// batch 1: rank 1, 1200 bytes, 1 segments, staging 0
	//   read region 0 @600 -> 0 @1200 run 600 x2(1200,600)
}

// A rank is missing: the plan is refused before a byte moves, and the error says which box nobody holds.
func ExampleNew_refused() {
	table, err := plan.Merge([]*plan.Layout{layoutOf(0, 0, 2)})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = plan.New(table, []plan.Dest{columnsOf(0)}, plan.Options{})
	fmt.Println(errors.Is(err, plan.ErrUncovered))
	fmt.Println(err)
	// Output:
	// true
	// plan: no shard holds, parameter "half", copy 0, source "w", destination rank 0, box [2:4, 0:300]
}

// Where each byte of a parameter comes from.
func ExamplePlan_Explain() {
	table, err := plan.Merge([]*plan.Layout{layoutOf(0, 0, 4)})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := plan.New(table, []plan.Dest{columnsOf(0)}, plan.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := p.Explain(0, "half")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(e)
	// Output:
	// half BF16[4 300] of destination rank 0: 2.40 kB at 0 of the arena
	//   copy 0: BF16 w, source.narrow(1, 0, 300), to 0
	//     [0:4, 0:300]: rank 0 region 0 @0: exact, 1 segments, 4 runs, 2.40 kB for 2.40 kB needed (batch 0): 4 runs straight into the arena cost 3 µs
}

// The boxes of a flattened parameter's range: a partial row, whole rows, a partial row.
func ExampleFlatBoxes() {
	for _, b := range plan.FlatBoxes([]int64{4, 6}, 4, 20) {
		fmt.Println(b)
	}
	// Output:
	// [0 1 4 6]
	// [1 3 0 6]
	// [3 4 0 2]
}

// Three ranks hold a tensor: two halves, and one of them once more. Equal boxes are alternatives.
func ExampleMerge() {
	table, err := plan.Merge([]*plan.Layout{layoutOf(0, 0, 2), layoutOf(1, 2, 4), layoutOf(2, 2, 4)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range table.Len() {
		fmt.Println(table.Name(i), table.DType(i), table.Shape(i))
		for _, group := range table.Replicas(i) {
			fmt.Print("  ", group[0].Box, " on")
			for _, s := range group {
				fmt.Print(" ", s.Rank)
			}
			fmt.Println()
		}
	}
	// Output:
	// w BF16 [4 600]
	//   [0 2 0 600] on 0
	//   [2 4 0 600] on 1 2
}

// The next version has the same layouts, so the plan is the same one; a rank that cuts otherwise makes another.
func ExamplePlan_Rebind() {
	table, _ := plan.Merge([]*plan.Layout{layoutOf(0, 0, 2), layoutOf(1, 2, 4)})
	p, err := plan.New(table, []plan.Dest{columnsOf(0)}, plan.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	same, _ := p.Rebind(table)
	fmt.Println(same == p)
	other, _ := plan.Merge([]*plan.Layout{layoutOf(0, 0, 1), layoutOf(1, 1, 4)})
	q, err := p.Rebind(other)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range q.Batches() {
		fmt.Println("rank", q.Batch(i).Rank, q.Batch(i).Wire, "bytes")
	}
	// Output:
	// true
	// rank 0 600 bytes
	// rank 1 1800 bytes
}

// A rank fails while a batch is read from it: another one that holds the same serves the same bytes.
func ExamplePlan_Reroute() {
	table, _ := plan.Merge([]*plan.Layout{layoutOf(0, 0, 4), layoutOf(1, 0, 4)})
	p, err := plan.New(table, []plan.Dest{columnsOf(0)}, plan.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	failed := p.Batch(0).Rank
	q, err := p.Reroute(0, func(rank int) bool { return rank == failed })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("rank", failed, "failed, rank", q.Batch(0).Rank, "serves", q.Stats().Wire, "bytes")
	// Output:
	// rank 0 failed, rank 1 serves 2400 bytes
}

// Of a new version only the last row changed: it alone is read, and the others are kept from the base.
func ExamplePlan_Partial() {
	table, _ := plan.Merge([]*plan.Layout{layoutOf(0, 0, 4)})
	p, err := plan.New(table, []plan.Dest{columnsOf(0)}, plan.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	q, err := p.Partial(func(int) iter.Seq2[[]int64, []int64] {
		return func(yield func(lo, hi []int64) bool) { yield([]int64{0, 0}, []int64{3, 600}) }
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := q.Stats()
	fmt.Println(s.Wire, "bytes read,", s.Saved, "saved")
	for k := range q.Kept() {
		fmt.Println("kept: bytes", k.Off, "to", k.Off+k.Run)
	}
	// Output:
	// 600 bytes read, 1800 saved
	// kept: bytes 0 to 1800
}

// A capture tells what each simulated rank of an engine needs; its parameters are laid out by the caller.
func ExampleDecodeCapture() {
	c, err := plan.DecodeCapture([]byte(`{"schema": "drydock.capture.v1", "engine": "an engine", "family": "tiny",
		"sources": [{"name": "w", "dtype": "BF16", "shape": [4, 600]}],
		"cases": [{"arch": "Tiny", "tp": 2, "rank": 1, "ep": false,
			"params": [{"name": "half", "dtype": "BF16", "shape": [4, 300]}],
			"copies": [[0, [["narrow", [1, 300, 300]]], 0, 0, [4, 300], [300, 1]]]}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := c.Dest(2, 1, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("an arena of", d.LayOut(0), "bytes for", d.Params[0].Name)
	_, err = c.Dest(4, 0, false)
	fmt.Println(err)
	// Output:
	// an arena of 2400 bytes for half
	// plan: capture of "tiny" has no case for tensor parallel 4, rank 0, expert parallel false; it has ranks 1 of 2
}

// Only the down projections of layer 3 are asked for.
func ExampleSelectAll() {
	s := plan.SelectAll(plan.SelectLayers([]int{3}), plan.SelectGlobs([]string{"*.down_proj.weight"}))
	wanted := s(nil, []plan.Dest{{Params: []plan.Param{{Name: "p"}}}})
	for _, name := range []string{"model.layers.3.mlp.down_proj.weight", "model.layers.3.mlp.up_proj.weight", "model.layers.30.mlp.down_proj.weight"} {
		fmt.Println(name, wanted(0, &plan.Copy{Source: name}))
	}
	// Output:
	// model.layers.3.mlp.down_proj.weight true
	// model.layers.3.mlp.up_proj.weight false
	// model.layers.30.mlp.down_proj.weight false
}
