package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// TestMergeKeepsEveryShard: whatever order sources and shards are listed in, each shard comes back with
// its rank, index, box and place.
func TestMergeKeepsEveryShard(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var layouts []*plan.Layout
		want := map[string][]string{}
		for rank := range 1 + r.IntN(4) {
			l := randomLayout(r, rank)
			layouts = append(layouts, l)
			noteShards(l, want)
		}
		r.Shuffle(len(layouts), func(i, k int) { layouts[i], layouts[k] = layouts[k], layouts[i] })
		tab, err := plan.Merge(layouts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tab.Len() {
			var got []string
			for _, s := range tab.Shards(i) {
				got = append(got, fmt.Sprint(s.Rank, s.Index, s.Region, s.Offset, s.Box))
			}
			slices.Sort(got)
			slices.Sort(want[tab.Name(i)])
			if !slices.Equal(got, want[tab.Name(i)]) {
				t.Fatalf("%s: got %v, expected %v", tab.Name(i), got, want[tab.Name(i)])
			}
		}
	}
}

// randomLayout lists some of nine sources in any order, with their shards in any order.
func randomLayout(r *rand.Rand, rank int) *plan.Layout {
	l := &plan.Layout{Rank: rank, Regions: []int64{1000, 2000}}
	for _, s := range r.Perm(9)[:1+r.IntN(9)] {
		l.Names = append(l.Names, fmt.Sprintf("source%d", s))
		l.DTypes = append(l.DTypes, plan.U8)
		if s%2 == 0 {
			l.Shapes = append(l.Shapes, 6)
		}
		l.Shapes = append(l.Shapes, 8)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
	}
	for range r.IntN(20) {
		s := r.IntN(len(l.Names))
		l.Source = append(l.Source, uint32(s))
		l.Region = append(l.Region, uint32(r.IntN(2)))
		l.Offset = append(l.Offset, r.Int64N(900))
		if (l.Names[s][6]-'0')%2 == 0 {
			lo := r.Int64N(6)
			l.Box = append(l.Box, lo, lo+1+r.Int64N(6-lo))
		}
		lo := r.Int64N(8)
		l.Box = append(l.Box, lo, lo+1+r.Int64N(8-lo))
	}
	return l
}

func noteShards(l *plan.Layout, into map[string][]string) {
	at := 0
	for k, s := range l.Source {
		n := 2
		if (l.Names[s][6]-'0')%2 == 0 {
			n = 4
		}
		into[l.Names[s]] = append(into[l.Names[s]], fmt.Sprint(l.Rank, k, l.Region[k], l.Offset[k], l.Box[at:at+n]))
		at += n
	}
}

// TestColumnsThatDontFit: layouts whose columns contradict each other are refused, with the rank.
func TestColumnsThatDontFit(t *testing.T) {
	t.Parallel()
	good := func() *plan.Layout {
		return &plan.Layout{
			Rank: 4, Regions: []int64{64}, Names: []string{"w"}, DTypes: []plan.DType{plan.F32}, ShapeEnd: []uint32{2}, Shapes: []int64{4, 4},
			Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: []int64{0, 4, 0, 4},
		}
	}
	if _, err := plan.Merge([]*plan.Layout{good()}); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(l *plan.Layout){
		"dtype missing":       func(l *plan.Layout) { l.DTypes = nil },
		"dtype unknown":       func(l *plan.Layout) { l.DTypes[0] = 200 },
		"dtype of half bytes": func(l *plan.Layout) { l.DTypes[0] = plan.F4 },
		"shape beyond":        func(l *plan.Layout) { l.ShapeEnd[0] = 3 },
		"shape negative":      func(l *plan.Layout) { l.Shapes[0] = -4 },
		"shape huge":          func(l *plan.Layout) { l.Shapes[0] = 1 << 62 },
		"too many dimensions": func(l *plan.Layout) { l.Shapes = make([]int64, 9); l.ShapeEnd[0] = 9 },
		"source beyond":       func(l *plan.Layout) { l.Source[0] = 1 },
		"region beyond":       func(l *plan.Layout) { l.Region[0] = 1 },
		"region missing":      func(l *plan.Layout) { l.Region = nil },
		"offset negative":     func(l *plan.Layout) { l.Offset[0] = -1 },
		"offset too far":      func(l *plan.Layout) { l.Offset[0] = 1 },
		"box cut off":         func(l *plan.Layout) { l.Box = l.Box[:3] },
		"box upside down":     func(l *plan.Layout) { l.Box[0], l.Box[1] = 4, 0 },
		"box negative":        func(l *plan.Layout) { l.Box[0] = -1 },
		"stride missing":      func(l *plan.Layout) { l.Stride = []int64{4} },
		"stride negative":     func(l *plan.Layout) { l.Stride = []int64{-4, 1} },
		"stride zero":         func(l *plan.Layout) { l.Stride = []int64{0, 1} },
		"stride too wide":     func(l *plan.Layout) { l.Stride = []int64{5, 1} },
	} {
		l := good()
		spoil(l)
		if _, err := plan.Merge([]*plan.Layout{l}); err == nil {
			t.Errorf("%s: not refused", name)
		} else if got := err.Error(); !strings.Contains(got, "4") {
			t.Errorf("%s: %q does not name the rank", name, got)
		}
	}
	if _, err := plan.Merge([]*plan.Layout{good(), good()}); err == nil {
		t.Error("one rank twice: not refused")
	}
}

// TestFlatBoxes: the boxes of a flat range hold exactly its elements, in order, and are few.
func TestFlatBoxes(t *testing.T) {
	t.Parallel()
	for _, shape := range [][]int64{{}, {7}, {4, 5}, {3, 4, 5}, {2, 3, 2, 3}} {
		n := plantest.Nelems(shape)
		for lo := range n {
			for hi := lo; hi <= n; hi++ {
				boxes := plan.FlatBoxes(shape, lo, hi)
				var got []int64
				stride := plantest.RowMajor(shape)
				for _, b := range boxes {
					plantest.Each(plantest.Sizes(b), func(at []int64) {
						flat := int64(0)
						for d, x := range at {
							flat += (b[2*d] + x) * stride[d]
						}
						got = append(got, flat)
					})
				}
				for i, f := range got {
					if f != lo+int64(i) {
						t.Fatalf("%v [%d, %d): %v holds %v", shape, lo, hi, boxes, got)
					}
				}
				if int64(len(got)) != hi-lo || len(boxes) > max(1, 2*(len(shape)-1)+1) {
					t.Fatalf("%v [%d, %d): %d boxes hold %d elements", shape, lo, hi, len(boxes), len(got))
				}
			}
		}
	}
}

func TestDTypeNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		want plan.DType
		size int64
	}{{"BF16", plan.BF16, 2}, {"bfloat16", plan.BF16, 2}, {"torch.float8_e4m3fn", plan.F8E4M3, 1}, {"int64", plan.I64, 8}, {"BOOL", plan.Bool, 1}, {"F4", plan.F4, 0}, {"C64", plan.C64, 8}} {
		d, err := plan.ParseDType(c.name)
		if err != nil || d != c.want || d.Size() != c.size {
			t.Errorf("%s: got %v of %d bytes, %v", c.name, d, d.Size(), err)
		}
		if back, err := plan.ParseDType(d.String()); err != nil || back != d {
			t.Errorf("%s: %v comes back as %v", c.name, d, back)
		}
	}
	for _, bad := range []string{"", "bf", "torch.", "invalid"} {
		if _, err := plan.ParseDType(bad); err == nil {
			t.Errorf("%q is a type", bad)
		}
	}
}

// TestMergeSurvivesAnything gives the merger columns of numbers that no trainer writes. It may refuse them, as it
// must when a shard lies outside its shape or region; what it takes can be planned, or refused by the planner.
func TestMergeSurvivesAnything(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(77, 78))
	odd := []int64{0, 0, 1, 1, 2, 3, 5, 8, 100, -1, -2, 1 << 31, 1 << 32, 1 << 62, math.MaxInt64, math.MinInt64}
	any64 := func() int64 { return odd[r.IntN(len(odd))] }
	little := func() int64 { return odd[r.IntN(8)] }
	taken := 0
	for range 20000 {
		pick := little
		if r.IntN(4) == 0 {
			pick = any64
		}
		var layouts []*plan.Layout
		for rank := range 1 + r.IntN(3) {
			layouts = append(layouts, oddLayout(r, rank, pick))
		}
		tab, err := plan.Merge(layouts)
		if err != nil {
			continue
		}
		taken++
		var d plan.Dest
		for i := range tab.Len() {
			for _, s := range tab.Shards(i) { // whatever was taken must lie inside
				inRegion(t, layouts, tab, i, &s)
			}
			d.Params = append(d.Params, plan.Param{Name: tab.Name(i), DType: tab.DType(i), Shape: tab.Shape(i)})
			d.Copies = append(d.Copies, whole(tab.Name(i), i, tab.Shape(i)...))
		}
		if plantest.Nelems(layouts[0].Regions) < 1<<20 {
			d.LayOut(0)
			_, _ = plan.New(tab, []plan.Dest{d}, plan.Options{}) // both answers are right
		}
	}
	if taken < 500 {
		t.Errorf("only %d of the tables were taken", taken)
	}
}

// oddLayout makes a layout of up to two sources and three shards, some of whose columns may be short.
func oddLayout(r *rand.Rand, rank int, pick func() int64) *plan.Layout {
	l := &plan.Layout{Rank: rank, Regions: []int64{64, pick()}}
	for i := range 1 + r.IntN(2) {
		for range r.IntN(3) {
			l.Shapes = append(l.Shapes, pick())
		}
		l.Names = append(l.Names, fmt.Sprint(rank, i)) // of its own: ranks that disagree are another test
		l.DTypes = append(l.DTypes, plan.DType(1+r.IntN(14)))
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
	}
	strided := r.IntN(2) == 0
	for range r.IntN(4) {
		s := r.IntN(len(l.Names))
		l.Source, l.Region, l.Offset = append(l.Source, uint32(s)), append(l.Region, uint32(r.IntN(2))), append(l.Offset, pick())
		from := uint32(0)
		if s > 0 {
			from = l.ShapeEnd[s-1]
		}
		for range l.ShapeEnd[s] - from {
			l.Box = append(l.Box, pick(), pick())
			if strided {
				l.Stride = append(l.Stride, pick())
			}
		}
	}
	if r.IntN(20) == 0 && len(l.Box) > 0 {
		l.Box = l.Box[1:]
	}
	return l
}

// inRegion fails when a shard that was taken leaves its shape or its region.
func inRegion(t *testing.T, layouts []*plan.Layout, tab *plan.Table, source int, s *plan.Shard) {
	t.Helper()
	n, stride := plantest.Sizes(s.Box), s.Stride
	if stride == nil {
		stride = plantest.RowMajor(n)
	}
	for d, size := range tab.Shape(source) {
		if s.Box[2*d] < 0 || s.Box[2*d+1] > size || n[d] <= 0 {
			t.Fatalf("box %v of shape %v was taken", s.Box, tab.Shape(source))
		}
	}
	end := s.Offset + plantest.Reach(n, stride)*tab.DType(source).Size()
	if s.Offset < 0 || end < s.Offset || end > layouts[s.Rank].Regions[s.Region] {
		t.Fatalf("bytes [%d, %d) of a region of %d were taken", s.Offset, end, layouts[s.Rank].Regions[s.Region])
	}
}
