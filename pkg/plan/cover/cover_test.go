package cover

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// counts is the dumb twin: how often each byte of the arena is written.
func counts(n int64, regions []Region) []int {
	out := make([]int, n)
	for _, r := range regions {
		at := make([]int64, r.NDim)
		for {
			off := r.Off
			for d, x := range at {
				off += x * r.Stride[d]
			}
			for i := range r.Run {
				out[off+i]++
			}
			d := len(at) - 1
			for ; d >= 0; d-- {
				if at[d]++; at[d] < r.N[d] {
					break
				}
				at[d] = 0
			}
			if d < 0 {
				break
			}
		}
	}
	return out
}

func each(list []Region) Regions {
	return func(yield func(int, *Region) bool) {
		for i := range list {
			r := list[i] // regions may be changed
			if !yield(i, &r) {
				return
			}
		}
	}
}

// region makes one; dims are pairs of n and stride.
func region(off, run int64, dims ...int64) Region {
	r := Region{Off: off, Run: run, NDim: len(dims) / 2}
	for d := range r.NDim {
		r.N[d], r.Stride[d] = dims[2*d], dims[2*d+1]
	}
	return r
}

func TestEqual(t *testing.T) {
	t.Parallel()
	one, two := []Space{{0, 12}}, []Space{{0, 12}, {12, 24}}
	for _, c := range []struct {
		name   string
		spaces []Space
		got    []Region
		wrong  []int
		stray  int
	}{
		{"whole", one, []Region{region(0, 12)}, nil, -1},
		{"two halves", one, []Region{region(6, 6), region(0, 6)}, nil, -1},
		{"columns", one, []Region{region(0, 1, 4, 3), region(1, 2, 4, 3)}, nil, -1},
		{"columns and rows", one, []Region{region(0, 1, 2, 3), region(1, 2, 2, 3), region(6, 6)}, nil, -1},
		{"even and odd", one, []Region{region(0, 1, 6, 2), region(1, 1, 6, 2)}, nil, -1},
		{"three dimensions", one, []Region{region(0, 1, 2, 6, 2, 2), region(1, 1, 2, 6, 2, 2), region(4, 2, 2, 6)}, nil, -1},
		{"hole", one, []Region{region(0, 5), region(6, 6)}, []int{0}, -1},
		{"overlap that fills a hole's worth", one, []Region{region(0, 6), region(5, 6)}, []int{0}, -1},
		{"twice and never", one, []Region{region(0, 4), region(0, 4), region(8, 4)}, []int{0}, -1},
		{"second space", two, []Region{region(0, 12), region(12, 11)}, []int{1}, -1},
		{"nothing", two, nil, []int{0, 1}, -1},
		{"past the end", one, []Region{region(0, 13)}, nil, 0},
		{"over the border", two, []Region{region(0, 6), region(6, 12), region(18, 6)}, nil, 1},
		{"outside", one, []Region{region(0, 12), region(40, 1)}, nil, 1},
	} {
		v := Equal(c.spaces, Whole(c.spaces), each(c.got), 8)
		if !slices.Equal(v.Wrong, c.wrong) || v.Stray != c.stray || v.Beyond >= 0 {
			t.Errorf("%s: got %+v; expected wrong %v, stray %d", c.name, v, c.wrong, c.stray)
		}
	}
}

// TestEqualAgainstCounts tries random regions, whose strides nest, cross and overlap, against counting.
func TestEqualAgainstCounts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	equal := 0
	for i := range 30000 {
		spaces := []Space{{0, 24}, {24, 48}, {50, 74}}
		got := tiling(r, spaces)
		if i%3 > 0 {
			spoil(r, got, spaces)
		}
		counted := counts(74, got)
		var want []int
		for k, s := range spaces {
			if slices.ContainsFunc(counted[s.Lo:s.Hi], func(n int) bool { return n != 1 }) {
				want = append(want, k)
			}
		}
		v := Equal(spaces, Whole(spaces), each(got), 4)
		if v.Stray >= 0 || v.Beyond >= 0 || !slices.Equal(v.Wrong, want) {
			t.Fatalf("case %d: got %+v, counting says %v\n%+v", i, v, want, got)
		}
		if len(want) == 0 {
			equal++
		}
		checkFaults(t, spaces, got, counted)
	}
	if equal < 1000 {
		t.Errorf("only %d cases were exact covers", equal)
	}
}

// tiling cuts each space of 24 bytes in a grid of its own and gives out the cells' rows and columns.
func tiling(r *rand.Rand, spaces []Space) []Region {
	var out []Region
	for _, s := range spaces {
		pitch := []int64{2, 3, 4, 6, 8, 12, 24}[r.IntN(7)]
		rows := 24 / pitch
		split := r.Int64N(rows + 1)
		col := r.Int64N(pitch + 1)
		for _, part := range [][4]int64{{0, split, 0, pitch}, {split, rows, 0, col}, {split, rows, col, pitch}} {
			if part[1] > part[0] && part[3] > part[2] {
				out = append(out, region(s.Lo+part[0]*pitch+part[2], part[3]-part[2], part[1]-part[0], pitch))
			}
		}
	}
	return out
}

func spoil(r *rand.Rand, list []Region, spaces []Space) {
	k := r.IntN(len(list))
	old := list[k]
	switch r.IntN(4) {
	case 0:
		list[k].Off++
	case 1:
		list[k].Run++
	case 2:
		list[k].Stride[0]--
	case 3:
		list[k].N[0] = max(1, list[k].N[0]-1)
	}
	end := list[k].Off + list[k].Run + (list[k].N[0]-1)*list[k].Stride[0]
	if list[k].Stride[0] < 1 || !slices.ContainsFunc(spaces, func(s Space) bool { return s.Lo <= list[k].Off && end <= s.Hi }) {
		list[k] = old
	}
}

// checkFaults wants every byte that is not written once named, and no other.
func checkFaults(t *testing.T, spaces []Space, got []Region, counted []int) {
	t.Helper()
	faults, ok := Faults(spaces, []int{0, 1, 2}, each(got), true, 100)
	if !ok {
		t.Fatal("too many runs")
	}
	named := make([]int, len(counted))
	for _, f := range faults {
		for i := f.Lo; i < f.Hi; i++ {
			named[spaces[f.Space].Lo+i] = 1
		}
	}
	for _, s := range spaces {
		for i := s.Lo; i < s.Hi; i++ {
			if (counted[i] != 1) != (named[i] == 1) {
				t.Fatalf("byte %d is written %d times, and named: %d\n%+v\n%+v", i, counted[i], named[i], got, faults)
			}
		}
	}
}

// TestPairing: both ways of pairing corners off say yes only to equal lists, in any order, with repetitions.
func TestPairing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	yes := 0
	for range 300 {
		n := 1 + r.IntN(6000)
		step := uint64(1) << r.IntN(12)
		plus := make([]uint64, n)
		for i := range plus {
			plus[i] = uint64(i)*step + uint64(r.IntN(3))*step
		}
		minus := slices.Clone(plus)
		r.Shuffle(n, func(i, k int) { minus[i], minus[k] = minus[k], minus[i] })
		equal := r.IntN(2) == 0
		if !equal {
			minus[r.IntN(n)] += step * uint64(1+r.IntN(2))
		}
		before := slices.Clone(plus)
		a, b := pairOff(plus, minus), pairOffInBuckets(plus, minus)
		if !equal && (a || b) || !slices.Equal(before, plus) {
			t.Fatalf("%d numbers: equal %t, paired off %t, in buckets %t", n, equal, a, b)
		}
		if equal && b {
			yes++
		}
	}
	if yes < 100 {
		t.Errorf("only %d equal lists were seen to be", yes)
	}
}

func TestSortCorners(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{0, 1, 100, 5000} {
		for _, width := range []int{1, 12, 40, 64} {
			list := make([]uint64, n)
			for i := range list {
				list[i] = r.Uint64() >> (64 - width) << (r.IntN(2) * 3)
			}
			want := slices.Clone(list)
			slices.Sort(want)
			sortCorners(&list)
			if !slices.Equal(list, want) {
				t.Fatalf("%d numbers of %d bits are not sorted", n, width)
			}
		}
	}
}

func BenchmarkEqual(b *testing.B) {
	const n = 1 << 17
	spaces := []Space{{0, n * 512}}
	order := rand.New(rand.NewPCG(9, 10)).Perm(n)
	got := func(yield func(int, *Region) bool) {
		r := Region{Run: 512}
		for i, k := range order {
			r.Off, r.Run, r.NDim = int64(k)*512, 512, 0
			if !yield(i, &r) {
				return
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if v := Equal(spaces, Whole(spaces), got, n); v.Wrong != nil {
			b.Fatal(v)
		}
	}
}
