package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPacked compares packed with laying every element out.
func TestPacked(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(61, 62))
	yes := 0
	for range 20000 {
		ndim := r.IntN(4)
		flat, stride := make([]int64, 2*ndim), make([]int64, ndim)
		step := int64(1)
		for d := ndim - 1; d >= 0; d-- {
			flat[2*d] = r.Int64N(3)
			n := r.Int64N(4)
			flat[2*d+1] = flat[2*d] + n
			if stride[d] = step; r.IntN(4) == 0 {
				stride[d] = r.Int64N(9)
			}
			step *= n
		}
		b := boxOf(flat)
		want, at := true, int64(0)
		p := pattern{}
		for d := range ndim {
			p.dims = append(p.dims, pdim{n: b.hi[d] - b.lo[d], src: stride[d]})
		}
		if b.nelems() > 0 {
			p.each(func(src, _ int64) bool {
				want = want && src == at // element by element, one after the other
				at++
				return want
			})
		}
		if got := packed(flat, stride); got != want {
			t.Fatalf("box %s with strides %v: got %t, laid out %t", boxString(flat), stride, got, want)
		}
		if want {
			yes++
		}
	}
	if yes < 2000 {
		t.Errorf("only %d boxes were packed", yes)
	}
}

// TestInside says which boxes a shard may have.
func TestInside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		box, stride, shape []int64
		ok                 bool
	}{
		{"whole", []int64{0, 4, 0, 6}, nil, []int64{4, 6}, true},
		{"nothing", []int64{4, 4, 0, 6}, nil, []int64{4, 6}, true},
		{"beyond", []int64{0, 5, 0, 6}, nil, []int64{4, 6}, false},
		{"before", []int64{-1, 3, 0, 6}, nil, []int64{4, 6}, false},
		{"upside down", []int64{3, 2, 0, 6}, nil, []int64{4, 6}, false},
		{"columns in place", []int64{0, 4, 0, 2}, []int64{6, 1}, []int64{4, 6}, true},
		{"transposed", []int64{0, 4, 0, 6}, []int64{1, 4}, []int64{4, 6}, true},
		{"one row shown four times", []int64{0, 4, 0, 6}, []int64{0, 1}, []int64{4, 6}, false},
		{"backwards", []int64{0, 4, 0, 6}, []int64{-6, 1}, []int64{4, 6}, false},
		{"a row of any stride", []int64{2, 3, 0, 6}, []int64{-7, 1}, []int64{4, 6}, true},
		{"a prepended axis of stride 0", []int64{0, 1, 0, 6}, []int64{0, 1}, []int64{1, 6}, true},
		{"nothing of any stride", []int64{2, 2, 0, 6}, []int64{0, -1}, []int64{4, 6}, true},
	} {
		if err := inside(c.box, c.stride, c.shape); (err == nil) != c.ok {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

// TestStridesThatSayNothing: two ranks that hold the same rows, one with strides that only repeat what packed rows
// have, are replicas of each other.
func TestStridesThatSayNothing(t *testing.T) {
	t.Parallel()
	layout := func(rank int, stride []int64) *Layout {
		return &Layout{
			Rank: rank, Regions: []int64{64}, Names: []string{"x"}, DTypes: []DType{BF16}, ShapeEnd: []uint32{2}, Shapes: []int64{4, 6},
			Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: []int64{1, 2, 0, 6}, Stride: stride,
		}
	}
	tab, err := Merge([]*Layout{layout(0, nil), layout(1, []int64{6, 1}), layout(2, []int64{99, 1}), layout(3, []int64{-1, 1})})
	if err != nil {
		t.Fatal(err)
	}
	if groups := tab.Replicas(0); len(groups) != 1 || len(groups[0]) != 4 {
		t.Errorf("got groups %+v, expected one of four ranks", groups)
	}
	s := tab.sharding(tab.classOf[0], nil)
	if len(s.slots) != 1 || len(s.slots[0].from) != 4 {
		t.Errorf("got slots %+v, expected one with four holders", s.slots)
	}
}

// TestJoin: dimensions that no shard cuts are joined with the one before, and what the joint boxes hold is what
// the published ones did.
func TestJoin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(63, 64))
	joined := 0
	for range 5000 {
		shape := []int64{1 + r.Int64N(4), 1 + r.Int64N(4), 1 + r.Int64N(4)}
		var slots []slot
		for range 1 + r.IntN(3) {
			flat := make([]int64, 0, 6)
			for _, n := range shape {
				lo, hi := int64(0), n
				if r.IntN(3) == 0 {
					lo = r.Int64N(n)
					hi = lo + 1 + r.Int64N(n-lo)
				}
				flat = append(flat, lo, hi)
			}
			slots = append(slots, newSlot(flat, nil, 2))
		}
		before := addresses(slots, shape)
		s := &sharding{shape: shape}
		s.join(slots)
		if after := addresses(slots, s.joint); !slices.EqualFunc(before, after, slices.Equal[[][2]int64]) {
			t.Fatalf("shape %v joined to %v: slots hold\n%v, before\n%v", shape, s.joint, after, before)
		}
		if len(s.joint) < len(shape) {
			joined++
		}
	}
	if joined < 1000 {
		t.Errorf("only %d shapes were joined", joined)
	}
}

// addresses lists, for each slot, the flat element and the address in the shard of everything that it holds.
func addresses(slots []slot, shape []int64) [][][2]int64 {
	var out [][][2]int64
	for i := range slots {
		s := &slots[i]
		p := pattern{}
		step := int64(1)
		for d := s.box.n - 1; d >= 0; d-- {
			p.src += s.box.lo[d] * step
			p.dst += (s.box.lo[d] - s.origin[d]) * s.mem[d]
			p.dims = append(p.dims, pdim{n: s.box.hi[d] - s.box.lo[d], src: step, dst: s.mem[d]})
			step *= shape[d]
		}
		var list [][2]int64
		p.each(func(flat, at int64) bool {
			list = append(list, [2]int64{flat, at})
			return true
		})
		out = append(out, sorted(list))
	}
	return out
}

// TestMinus compares taking one box out of another with doing so element by element.
func TestMinus(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(65, 66))
	random := func() box {
		b := box{n: 3}
		for d := range 3 {
			b.lo[d] = r.Int64N(5)
			b.hi[d] = b.lo[d] + 1 + r.Int64N(5-b.lo[d])
		}
		return b
	}
	holds := func(b *box, at [3]int64) bool {
		for d := range 3 {
			if at[d] < b.lo[d] || at[d] >= b.hi[d] {
				return false
			}
		}
		return true
	}
	for range 3000 {
		a, o := random(), random()
		rest := a.minus(&o, nil)
		if len(rest) > 6 {
			t.Fatalf("%d boxes, at most two a dimension are needed", len(rest))
		}
		for i := range int64(125) {
			at := [3]int64{i / 25, i / 5 % 5, i % 5}
			n := 0
			for k := range rest {
				if holds(&rest[k], at) {
					n++
				}
			}
			want := 0
			if holds(&a, at) && !holds(&o, at) {
				want = 1
			}
			if n != want {
				t.Fatalf("%s without %s: %v is held %d times", boxString(a.flat()), boxString(o.flat()), at, n)
			}
		}
	}
}

// TestCellGrid compares cutting a source in what changed and what didn't with asking each element.
func TestCellGrid(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(67, 68))
	for range 3000 {
		shape := []int64{1 + r.Int64N(6), 1 + r.Int64N(6), 1 + r.Int64N(6)}
		var flat []int64
		boxes := make([]box, r.IntN(5))
		for i := range boxes {
			boxes[i].n = 3
			for d, n := range shape {
				boxes[i].lo[d] = r.Int64N(n)
				boxes[i].hi[d] = boxes[i].lo[d] + 1 + r.Int64N(n-boxes[i].lo[d])
				flat = append(flat, boxes[i].lo[d], boxes[i].hi[d])
			}
		}
		g, ok := newCells(shape, flat)
		if !ok {
			t.Fatal("too fine")
		}
		g.mark(flat)
		count := func(list []box, at *box) (n int) {
			for i := range list {
				if list[i].overlaps(at) {
					n++
				}
			}
			return n
		}
		same, changed := g.boxes(true), g.boxes(false)
		for i := range nelems(shape) {
			at := box{n: 3, lo: [maxSourceDims]int64{i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]}}
			for d := range 3 {
				at.hi[d] = at.lo[d] + 1
			}
			want := min(count(boxes, &at), 1)
			if count(same, &at) != want || count(changed, &at) != 1-want {
				t.Fatalf("shape %v, unchanged %v: element %v lies in %d boxes of what is kept, %d of what is read", shape, flat, at.lo[:3], count(same, &at), count(changed, &at))
			}
		}
	}
}

// TestCellGridGivesUp: boxes so fine that their grid would not fit are not cut by.
func TestCellGridGivesUp(t *testing.T) {
	t.Parallel()
	shape := []int64{1 << 12, 1 << 12}
	var flat []int64
	for i := range int64(1 << 12) {
		flat = append(flat, i, i+1, i, i+1)
	}
	if _, ok := newCells(shape, flat); ok {
		t.Error("a grid of 16 million cells was made")
	}
}
