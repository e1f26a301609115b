package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// elements lists what a walk or lattice holds, as pairs of source element and destination byte.
func elements(w *walk, stride func(j int) (src, dst int64), src, dst int64) [][2]int64 {
	out := [][2]int64{{src, dst}}
	for j := range w.n {
		s, d := stride(j)
		var next [][2]int64
		for _, e := range out {
			for i := range w.size[j] {
				next = append(next, [2]int64{e[0] + i*s, e[1] + i*d})
			}
		}
		out = next
	}
	return out
}

func sorted(list [][2]int64) [][2]int64 {
	slices.SortFunc(list, func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
	return list
}

// TestResolve compares lattices, and their parts inside and outside a box, with the elements of the walk
// one by one: whatever is flattened, stepped over, split or read along a diagonal.
func TestResolve(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(21, 22))
	for range 20000 {
		shape := make([]int64, 1+r.IntN(3))
		total := int64(1)
		for d := range shape {
			shape[d] = 1 + r.Int64N(6)
			total *= shape[d]
		}
		w := randomWalk(r, total)
		lats, ok := newResolver(shape).resolve(&w)
		if !ok {
			t.Fatal("too many parts")
		}
		want := sorted(elements(&w, func(j int) (int64, int64) { return w.srcStride[j], w.dstStride[j] }, w.src, w.dst))
		b := box{n: len(shape)}
		for d := range shape {
			b.lo[d] = r.Int64N(shape[d])
			b.hi[d] = b.lo[d] + 1 + r.Int64N(shape[d]-b.lo[d])
		}
		var got, inside, wantInside [][2]int64
		for i := range lats {
			got = append(got, coordinates(&lats[i], shape)...)
			for _, p := range lats[i].cut(&b, nil) {
				inside = append(inside, coordinates(&p, shape)...)
			}
		}
		for _, e := range want {
			if holds(&b, shape, e[0]) {
				wantInside = append(wantInside, e)
			}
		}
		if !slices.Equal(sorted(got), want) {
			t.Fatalf("shape %v, walk %+v:\n got %v\nwant %v", shape, w, got, want)
		}
		if !slices.Equal(sorted(inside), wantInside) {
			t.Fatalf("shape %v, walk %+v, box %s:\n got %v\nwant %v", shape, w, boxString(b.flat()), inside, wantInside)
		}
	}
}

// randomWalk makes a walk of up to three dimensions inside total elements. Strides need not nest.
func randomWalk(r *rand.Rand, total int64) walk {
	w := walk{src: r.Int64N(total)}
	room := total - 1 - w.src
	for range r.IntN(4) {
		if room == 0 {
			break
		}
		stride := 1 + r.Int64N(room)
		if r.IntN(2) == 0 {
			stride = 1 + r.Int64N(min(room, 4))
		}
		n := 1 + r.Int64N(room/stride)
		if n*stride <= room {
			w.size[w.n], w.srcStride[w.n], w.dstStride[w.n] = n+1, stride, 1+r.Int64N(50)
			w.n++
			room -= n * stride
		}
	}
	return w
}

// coordinates lists a lattice by its coordinates, which must stay inside the shape.
func coordinates(l *lattice, shape []int64) [][2]int64 {
	var out [][2]int64
	idx := make([]int64, l.n)
	for {
		flat, dst := int64(0), l.dst
		for d, n := range shape {
			c := l.at[d]
			for j, i := range idx {
				c += i * l.step[j][d]
			}
			if c < 0 || c >= n {
				return nil
			}
			flat = flat*n + c
		}
		for j, i := range idx {
			dst += i * l.dstStride[j]
		}
		out = append(out, [2]int64{flat, dst})
		j := len(idx) - 1
		for ; j >= 0; j-- {
			if idx[j]++; idx[j] < l.size[j] {
				break
			}
			idx[j] = 0
		}
		if j < 0 {
			return out
		}
	}
}

func holds(b *box, shape []int64, flat int64) bool {
	for d := len(shape) - 1; d >= 0; d-- {
		if c := flat % shape[d]; c < b.lo[d] || c >= b.hi[d] {
			return false
		}
		flat /= shape[d]
	}
	return true
}

// TestResolveStaysSmall: a step that doesn't divide the rows makes as many parts as the step, not as the rows.
func TestResolveStaysSmall(t *testing.T) {
	t.Parallel()
	w := walk{n: 1}
	w.size[0], w.srcStride[0], w.dstStride[0] = 1_000_000, 3, 2
	lats, ok := newResolver([]int64{3_000_000/7 + 1, 7}).resolve(&w)
	if !ok || len(lats) > 10 {
		t.Errorf("%d parts", len(lats))
	}
}
