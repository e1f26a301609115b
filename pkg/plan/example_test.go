package plan_test

import (
	"errors"
	"fmt"

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
