package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// TestEveryRegionIsCheckedOrPlanned gives destinations regions that are odd, and says what each is refused for;
// "" where it is none of the planner's business to refuse it.
func TestEveryRegionIsCheckedOrPlanned(t *testing.T) {
	t.Parallel()
	ones := func(n int, more ...int64) []int64 {
		out := make([]int64, n, n+len(more))
		for i := range out {
			out[i] = 1
		}
		return append(out, more...)
	}
	tensor := func(shape ...int64) []plan.Param {
		return []plan.Param{{Name: "p", DType: plan.BF16, Shape: shape, Padded: true}}
	}
	for _, c := range []struct {
		name   string
		params []plan.Param
		copies []plan.Copy
		fills  []plan.Fill
		err    error
		says   string
	}{
		{"leading sizes of 1, as copy_ takes them", tensor(6), []plan.Copy{{Shape: ones(10, 6), Stride: ones(10, 1)}}, nil, nil, ""},
		{"more dimensions than anything has", tensor(6), []plan.Copy{{Shape: ones(40, 6), Stride: ones(40, 1)}}, nil, plan.ErrLimit, "41 dimensions"},
		{"a fill of as many", tensor(6), nil, []plan.Fill{{Shape: ones(40, 6), Stride: ones(40, 1)}}, plan.ErrLimit, "41 dimensions"},
		{"sizes without strides", tensor(6), []plan.Copy{{Shape: []int64{6}}}, nil, plan.ErrShape, "[6]"},
		{"a fill of sizes without strides", tensor(6), nil, []plan.Fill{{Shape: []int64{6}}}, plan.ErrShape, "1 sizes and 0 strides"},
		{"strides that meet", tensor(6), []plan.Copy{{Ops: []plan.Op{plantest.Op("view", 2, 3)}, Shape: []int64{2, 3}, Stride: []int64{1, 1}}}, nil, plan.ErrOverlap, "twice"},
		{"strides that don't nest and don't meet", tensor(8), []plan.Copy{{Ops: []plan.Op{plantest.Op("view", 3, 2)}, Shape: []int64{3, 2}, Stride: []int64{2, 3}}}, nil, nil, ""},
		{"the same element several times", tensor(6), []plan.Copy{{Shape: []int64{6}, Stride: []int64{0}}}, nil, plan.ErrOverlap, "strides [0]"},
		{"backwards", tensor(6), []plan.Copy{{Offset: 5, Shape: []int64{6}, Stride: []int64{-1}}}, nil, plan.ErrDest, "strides [-1]"},
		{"before the parameter", tensor(6), []plan.Copy{{Offset: -1, Shape: []int64{6}, Stride: []int64{1}}}, nil, plan.ErrDest, "offset -1"},
		{"beyond the parameter", tensor(6), []plan.Copy{{Offset: 1, Shape: []int64{6}, Stride: []int64{1}}}, nil, plan.ErrDest, "of 6 elements"},
		{"a reach that overflows", tensor(6), []plan.Copy{{Shape: []int64{6}, Stride: []int64{1 << 62}}}, nil, plan.ErrDest, "overflows"},
		{"nothing, anywhere", tensor(6), []plan.Copy{{Ops: []plan.Op{plantest.Op("narrow", 0, 0, 0)}, Offset: 99, Shape: []int64{0}, Stride: []int64{7}}}, nil, nil, ""},
		{"a negative size", tensor(-1), nil, nil, plan.ErrDest, "negative"},
		{"a size that overflows beside one of 0", tensor(1<<62, 1<<62, 0), nil, nil, plan.ErrDest, "overflow"},
		{"a fill beyond", tensor(6), nil, []plan.Fill{{Offset: 4, Shape: []int64{3}, Stride: []int64{1}}}, plan.ErrDest, "offset 4"},
		{"a fill of no parameter", tensor(6), nil, []plan.Fill{{Param: 1}}, plan.ErrUnknownParam, "1 of 1"},
		{"a scalar fill", tensor(), nil, []plan.Fill{{Value: 2}}, nil, ""},
		{"two parameters of one name", append(tensor(6), plan.Param{Name: "p", DType: plan.BF16, Shape: []int64{6}, Padded: true}), nil, nil, plan.ErrDest, "two parameters"},
		{"an alias that is a parameter of its own", append(tensor(6), plan.Param{Name: "q", DType: plan.BF16, Shape: []int64{6}, Padded: true}), nil, nil, plan.ErrDest, `alias "q"`},
	} {
		w := holding("x", plan.BF16, []int64{6}, map[int][][]int64{0: {{0, 6}}})
		d := plan.Dest{Params: c.params, Copies: c.copies, Fills: c.fills}
		if strings.Contains(c.says, "alias") {
			d.Alias = map[string]string{"q": "p"}
		}
		for i := range d.Copies {
			d.Copies[i].Source = "x"
		}
		if c.err == nil || len(d.Params) > 1 {
			d.LayOut(0)
		}
		p, err := plan.New(merged(t, w), []plan.Dest{d}, plan.Options{})
		switch {
		case c.err == nil && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.err == nil:
			full := map[string][]byte{"x": plantest.Bytes(12, 1)}
			w.Load(p.Table(), func(int) []byte { return full["x"] })
			if err := w.Perform(p, [][]byte{make([]byte, 64)}); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		default:
			words := []string{c.says, `"p"`}
			if errors.Is(c.err, plan.ErrUnknownParam) {
				words = words[:1]
			}
			t.Run(c.name, func(t *testing.T) { says(t, err, c.err, words...) })
		}
	}
}

// TestReorderingOfManyDimensions: what a capture reorders on the way may have eight dimensions; more is refused.
func TestReorderingOfManyDimensions(t *testing.T) {
	t.Parallel()
	for ndim := 7; ndim < 12; ndim++ {
		n := int64(1) << ndim
		twos, back := make([]int64, ndim), make([]int64, ndim)
		for i := range twos {
			twos[i], back[i] = 2, int64(ndim-1-i)
		}
		ops := []plan.Op{plantest.Op("view", twos...), plantest.Op("permute", back...), plantest.Op("reshape", n)}
		d := plan.Dest{
			Reorders: true, Params: []plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{n}}},
			Copies: []plan.Copy{{Source: "x", Ops: ops, Shape: []int64{n}, Stride: []int64{1}}},
		}
		w := holding("x", plan.U8, []int64{n}, map[int][][]int64{0: {{0, n}}})
		if ndim > 8 {
			refusal(t, merged(t, w), plan.Options{}, plan.ErrLimit, []plan.Dest{d}, fmt.Sprint(ndim, " dimensions"))
			continue
		}
		full := plantest.Bytes(n, 5)
		_, got := perform(t, w, merged(t, w), plan.Options{}, map[string][]byte{"x": full}, d)
		for i := range got[0] {
			from := 0
			for b := range ndim {
				from |= i >> b & 1 << (ndim - 1 - b)
			}
			if got[0][i] != full[from] {
				t.Fatalf("%d dimensions: byte %d is not byte %d of the source", ndim, i, from)
			}
		}
	}
}

// TestPlansAreUsedByManyAtOnce: one plan is rebound, made partial, rerouted and read by several goroutines, which
// only the race detector would see disturb each other.
func TestPlansAreUsedByManyAtOnce(t *testing.T) {
	t.Parallel()
	c, err := plantest.Random(12)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(c.Table, c.Dests, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, nothing := p.Describe(), make(kept, c.Table.Len())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			again, err := plan.Merge(c.World.Layouts)
			if err != nil {
				t.Error(err)
				return
			}
			q, err := p.Rebind(again)
			if err != nil || q.Describe() != want {
				t.Errorf("rebound to an equal table: %v, and another plan", err)
			}
			if _, err := p.Partial(nothing.unchanged); err != nil {
				t.Error(err)
			}
			for i := range p.Batches() {
				_, _ = p.Reroute(i, func(int) bool { return false }) // may find no other rank
			}
		})
	}
	wg.Wait()
}
