package plan_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// small runs f and fails when it allocated much: a few lines of JSON must not fill a memory. Work without end is found by
// the limit of the whole run.
func small(t *testing.T, f func()) {
	t.Helper()
	const most = 512 << 20 // bytes; the race detector's among them
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > most {
		t.Errorf("%d MB were allocated", n>>20)
	}
}

// stepped slices the last dimension.
func stepped(dim int, start, stop, step int64) plan.Op {
	op := plan.Op{Name: "__getitem__"}
	for range dim {
		op.Args = append(op.Args, plan.Arg{Kind: plan.ArgSlice})
	}
	op.Args = append(op.Args, plan.Arg{Kind: plan.ArgSlice, Start: start, Stop: stop, Step: step, Has: plan.HasStart | plan.HasStop | plan.HasStep})
	return op
}

// TestLittleInputLittleWork gives the planner inputs of a few hundred bytes whose sizes are large: it plans
// them or refuses them by name, and either way it stays small. Not parallel: it watches what is allocated.
func TestLittleInputLittleWork(t *testing.T) {
	const n = 1 << 26
	odd := []int64{70001, 65537}
	flat := func(step int64) plan.Copy {
		length := (odd[0]*odd[1] + step - 1) / step
		return plan.Copy{
			Source: "x", Ops: []plan.Op{plantest.Op("view", -1), stepped(0, 0, odd[0]*odd[1], step)},
			Shape: []int64{length}, Stride: []int64{1},
		}
	}
	deep := []int64{64, 64, 64, 64, 64, 2, 2, 2}
	reversed := plan.Copy{Source: "x", Ops: []plan.Op{plantest.Op("permute", 7, 6, 5, 4, 3, 2, 1, 0)}, Shape: []int64{2, 2, 2, 64, 64, 64, 64, 64}}
	reversed.Stride = plantest.RowMajor(reversed.Shape)
	column := func(at, step, rows int64) plan.Copy {
		return plan.Copy{Source: "x", Ops: []plan.Op{plantest.Op("narrow", 0, 0, rows), plantest.Op("select", 1, at)}, Shape: []int64{rows}, Stride: []int64{step}}
	}
	at := func(c plan.Copy, off int64) plan.Copy {
		c.Offset = off
		return c
	}
	for _, c := range []struct {
		name   string
		shape  []int64
		nelems int64 // of the parameter
		copies []plan.Copy
		o      plan.Options
		says   error
	}{
		{"a hole at every second element", []int64{n / 2}, n, []plan.Copy{{Shape: []int64{n / 2}, Stride: []int64{2}}}, plan.Options{}, plan.ErrHole},
		{"an overlap at every second element", []int64{n}, n, []plan.Copy{
			{Shape: []int64{n}, Stride: []int64{1}}, {Ops: []plan.Op{stepped(0, 0, n, 2)}, Shape: []int64{n / 2}, Stride: []int64{2}},
		}, plan.Options{}, plan.ErrOverlap},
		{"a step that falls into many parts", odd, (odd[0]*odd[1] + 30010) / 30011, []plan.Copy{flat(30011)}, plan.Options{}, plan.ErrLimit},
		{"a step that falls into few", odd, (odd[0]*odd[1] + 4) / 5, []plan.Copy{flat(5)}, plan.Options{}, nil},
		{"steps that don't divide each other", []int64{n, 6}, n / 4 * 12, []plan.Copy{
			at(column(1, 2, n/4*3), 1), at(column(0, 2, n/4*3), 0), // one and a half n elements
			at(column(0, 3, n/2), n/2*3), at(column(2, 3, n/2), n/2*3+2), at(column(1, 3, n/2), n/2*3+1),
		}, plan.Options{}, plan.ErrLimit},
		{"more bytes than a world has", []int64{1 << 56}, 1 << 56, []plan.Copy{{Shape: []int64{1 << 56}, Stride: []int64{1}}}, plan.Options{}, plan.ErrLimit},
		{"eight dimensions reversed", deep, plantest.Nelems(deep), []plan.Copy{reversed}, plan.Options{}, nil},
		{"the same by the classic rules", deep, plantest.Nelems(deep), []plan.Copy{reversed}, plan.Options{Classic: true, MaxSegmentsPerCopy: 1 << 50}, plan.ErrLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			half := c.shape[len(c.shape)-1] / 2 // two ranks cut the last dimension: nothing joins
			lo, hi := fullBox(c.shape), fullBox(c.shape)
			lo[len(lo)-1], hi[len(hi)-2] = half, half
			w := holding("x", plan.BF16, c.shape, map[int][][]int64{0: {lo}, 1: {hi}})
			d := plan.Dest{Params: []plan.Param{{Name: "p", DType: plan.BF16, Shape: []int64{c.nelems}}}, Copies: c.copies}
			for i := range d.Copies {
				d.Copies[i].Source = "x"
			}
			small(t, func() {
				_, err := plan.New(merged(t, w), []plan.Dest{d}, c.o)
				if c.says == nil && err != nil {
					t.Error(err)
				}
				if c.says != nil {
					says(t, err, c.says, `"p"`)
				}
			})
		})
	}
}

// TestCrossingSlabs: shards that cross each other in three dimensions are cut in the third power of their number,
// which is refused where it is too much; what nobody holds is named in either case.
//
// Not parallel: it watches what is allocated.
func TestCrossingSlabs(t *testing.T) {
	for _, c := range []struct {
		each int64 // slabs along each dimension
		err  error
	}{{10, plan.ErrUncovered}, {90, plan.ErrLimit}} {
		n := 4 * c.each
		var boxes [][]int64
		for i := range c.each {
			for d := range 3 {
				b := []int64{0, n, 0, n, 0, n}
				b[2*d], b[2*d+1] = 4*i, 4*i+2
				boxes = append(boxes, b)
			}
		}
		w := holding("x", plan.U8, []int64{n, n, n}, map[int][][]int64{0: boxes})
		small(t, func() {
			d := want([]plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{n, n, n}}}, whole("x", 0, n, n, n))
			refusal(t, merged(t, w), plan.Options{}, c.err, []plan.Dest{d}, `"p"`, `"x"`)
		})
	}
}

func fullBox(shape []int64) []int64 {
	var box []int64
	for _, n := range shape {
		box = append(box, 0, n)
	}
	return box
}

// TestManyCopiesOfOneSource: a copy for each row of a source costs as much per copy when there are ten times as
// many of them. Not parallel: it watches what is allocated, which was the square of the copies when each join copied the list.
func TestManyCopiesOfOneSource(t *testing.T) {
	const rows, cols = 20000, 64
	w := holding("x", plan.BF16, []int64{rows, cols}, map[int][][]int64{0: {{0, rows, 0, cols}}})
	var d plan.Dest
	for i := range int64(rows) {
		d.Params = append(d.Params, plan.Param{Name: fmt.Sprint(i), DType: plan.BF16, Shape: []int64{cols}})
		d.Copies = append(d.Copies, plan.Copy{Source: "x", Param: int(i), Ops: []plan.Op{plantest.Op("select", 0, i)}, Shape: []int64{cols}, Stride: []int64{1}})
	}
	d.LayOut(0)
	var p *plan.Plan
	small(t, func() {
		var err error
		if p, err = plan.New(merged(t, w), []plan.Dest{d}, plan.Options{}); err != nil {
			t.Fatal(err)
		}
	})
	if s := p.Stats(); s.Wire != rows*cols*2 || s.Needed != s.Wire {
		t.Errorf("%d bytes cross for %d needed, the source has %d", s.Wire, s.Needed, rows*cols*2)
	}
}
