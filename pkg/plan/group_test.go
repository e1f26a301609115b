package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// hitOf makes a hit of a packed shard that is the whole of a two-dimensional source of bytes: rows [lo, hi) by steps
// and columns [left, right) by steps.
func hitOf(s *slot, at, n, step [2]int64) hit {
	l := &lattice{}
	l.n = 2
	for d := range 2 {
		l.at[d], l.size[d], l.step[d][d] = at[d], n[d], step[d]
	}
	h, _ := newHit(l, s, nil)
	return h
}

// wholeSlot is a shard that holds a source of bytes whole, packed.
func wholeSlot(rows, cols int64) *slot {
	s := newSlot([]int64{0, rows, 0, cols}, nil, 1)
	return &s
}

// randomHits makes hits inside a slot, of which many overlap and some interleave.
func randomHits(r *rand.Rand, s *slot, n int) []hit {
	out := make([]hit, n)
	for k := range out {
		var at, size, step [2]int64
		for d := range 2 {
			extent := s.box.hi[d]
			step[d] = 1 + r.Int64N(3)
			at[d] = r.Int64N(extent)
			size[d] = 1 + r.Int64N(min(4, (extent-1-at[d])/step[d]+1))
		}
		out[k] = hitOf(s, at, size, step)
	}
	return out
}

// bytesOf lists the bytes of the shard that a hit reads.
func bytesOf(h *hit) map[int64]bool {
	p := pattern{src: h.mem, dims: h.dims}
	out := map[int64]bool{}
	p.each(func(src, _ int64) bool {
		out[src] = true
		return true
	})
	return out
}

func meet(a, b map[int64]bool) bool {
	for at := range a {
		if b[at] {
			return true
		}
	}
	return false
}

// TestApartNeverLies: hits that are said to share no element share none, and those whose boxes don't meet are said
// to be apart.
func TestApartNeverLies(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(41, 42))
	s := wholeSlot(9, 12)
	told, apartInBoxes := 0, 0
	for range 20000 {
		h := randomHits(r, s, 2)
		if !apart(&h[0], &h[1]) {
			continue
		}
		told++
		if meet(bytesOf(&h[0]), bytesOf(&h[1])) {
			t.Fatalf("%+v and %+v share elements", h[0], h[1])
		}
		if h[0].hull.overlaps(&h[1].hull) {
			apartInBoxes++ // by what they take of each period
		}
	}
	if told < 5000 || apartInBoxes < 50 {
		t.Errorf("only %d pairs were told apart, %d of them interleaved", told, apartInBoxes)
	}
}

// TestInterleavedRowsAreApart: the rows of q, k and v that lie interleaved in one tensor are three sets, not one.
func TestInterleavedRowsAreApart(t *testing.T) {
	t.Parallel()
	s := wholeSlot(12, 4)
	var hits []hit
	for part := range int64(3) {
		hits = append(hits, hitOf(s, [2]int64{part, 0}, [2]int64{4, 4}, [2]int64{3, 1}))
	}
	if got := sharing(hits); len(got) != 3 {
		t.Errorf("%d sets, expected one for each of q, k and v: %v", len(got), got)
	}
}

// TestSharingAgainstComparingAll compares the sweep with joining all pairs of hits that may share elements.
func TestSharingAgainstComparingAll(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(43, 44))
	for range 3000 {
		s := wholeSlot(3+r.Int64N(10), 3+r.Int64N(10))
		hits := randomHits(r, s, r.IntN(12))
		slices.SortStableFunc(hits, func(a, b hit) int { return int(a.mem - b.mem) })
		got := sharing(hits)
		if want := closure(hits); !coarser(got, want) {
			t.Fatalf("%d hits: got sets %v, which tear apart what shares elements: %v", len(hits), got, want)
		}
		var seen []int
		for i, set := range got {
			if !slices.IsSorted(set) || i > 0 && got[i-1][0] > set[0] {
				t.Fatalf("sets are not in order: %v", got)
			}
			seen = append(seen, set...)
		}
		if slices.Sort(seen); len(seen) != len(hits) || len(slices.Compact(seen)) != len(hits) {
			t.Fatalf("%d hits in sets %v", len(hits), got)
		}
	}
}

// closure joins hits that really share bytes, directly or by way of others: the finest right answer.
func closure(hits []hit) [][]int {
	of := make([]int, len(hits))
	for i := range of {
		of[i] = i
	}
	for i := range hits {
		for k := range i {
			if of[i] != of[k] && meet(bytesOf(&hits[i]), bytesOf(&hits[k])) {
				from, to := of[i], of[k]
				for j := range of {
					if of[j] == from {
						of[j] = to
					}
				}
			}
		}
	}
	sets := make([][]int, len(hits))
	for i, s := range of {
		sets[s] = append(sets[s], i)
	}
	return slices.DeleteFunc(sets, func(s []int) bool { return len(s) == 0 })
}

// coarser reports whether each of the fine sets lies in one of the coarse ones.
func coarser(coarse, fine [][]int) bool {
	in := map[int]int{}
	for i, set := range coarse {
		for _, k := range set {
			in[k] = i
		}
	}
	for _, set := range fine {
		for _, k := range set {
			if in[k] != in[set[0]] {
				return false
			}
		}
	}
	return true
}

// TestCellsArePartition: every element of the box around overlapping hits lies in exactly one cell, and no
// boundary of a hit goes through a cell.
func TestCellsArePartition(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(45, 46))
	for range 1000 {
		s := wholeSlot(8, 8)
		var g group
		hits := randomHits(r, s, 1+r.IntN(5))
		g.hull = hits[0].hull
		for k := range hits {
			g.add(&hits[k])
		}
		var owners [8][8]int
		for _, c := range cells(&g) {
			for y := c.lo[0]; y < c.hi[0]; y++ {
				for x := c.lo[1]; x < c.hi[1]; x++ {
					owners[y][x]++
				}
			}
			for k := range hits {
				if m := c.meet(&hits[k].hull); c.overlaps(&hits[k].hull) && m != c {
					t.Fatalf("cell %s is cut by a hit of %s", boxString(c.flat()), boxString(hits[k].hull.flat()))
				}
			}
		}
		for y := g.hull.lo[0]; y < g.hull.hi[0]; y++ {
			for x := g.hull.lo[1]; x < g.hull.hi[1]; x++ {
				if owners[y][x] != 1 {
					t.Fatalf("(%d, %d) lies in %d cells of %s", y, x, owners[y][x], boxString(g.hull.flat()))
				}
			}
		}
	}
}

// TestCellsGiveUp: so many boundaries that cutting costs more than it saves make no cells.
func TestCellsGiveUp(t *testing.T) {
	t.Parallel()
	s := wholeSlot(100, 100)
	var g group
	for i := range int64(50) {
		h := hitOf(s, [2]int64{i, i}, [2]int64{20, 20}, [2]int64{1, 1})
		if i == 0 {
			g.hull = h.hull
		}
		g.add(&h)
	}
	if c := cells(&g); c != nil {
		t.Errorf("%d cells, at most %d are wanted", len(c), maxCells)
	}
}

// TestByPattern: hits that read the same elements in the same pattern are one group, whatever they write.
func TestByPattern(t *testing.T) {
	t.Parallel()
	s := wholeSlot(6, 6)
	even := hitOf(s, [2]int64{0, 0}, [2]int64{3, 6}, [2]int64{2, 1})
	third := hitOf(s, [2]int64{0, 0}, [2]int64{2, 6}, [2]int64{3, 1})
	again := even
	again.use = 7
	groups := byPattern([]hit{even, third, again})
	if len(groups) != 2 || len(groups[0].hits) != 2 || len(groups[1].hits) != 1 || !groups[0].alike || !groups[0].shared {
		t.Errorf("got %d groups: %+v", len(groups), groups)
	}
}

// TestNeededAmong compares what groups need together with the set of their bytes: each byte counts for one group.
func TestNeededAmong(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(47, 48))
	for range 3000 {
		s := wholeSlot(7, 9)
		b := builder{s: &sharding{slots: []slot{*s}}, uses: []use{{from: U8, to: U8}}}
		all := map[int64]bool{}
		var groups []*group
		for range 1 + r.IntN(3) {
			hits := randomHits(r, s, 1+r.IntN(3))
			g := &group{hull: hits[0].hull}
			for k := range hits {
				g.add(&hits[k])
				for at := range bytesOf(&hits[k]) {
					all[at] = true
				}
			}
			groups = append(groups, g)
		}
		sum := int64(0)
		for _, n := range b.neededAmong(groups) {
			sum += n
		}
		if sum != int64(len(all)) {
			t.Fatalf("%d groups need %d bytes together, got %d", len(groups), len(all), sum)
		}
	}
}

// TestNeededOfManyRuns: beyond what is worth comparing, the answer lies between the largest group and the box.
func TestNeededOfManyRuns(t *testing.T) {
	t.Parallel()
	const rows = maxNeededRuns
	s := wholeSlot(rows, 4)
	b := builder{s: &sharding{slots: []slot{*s}}, uses: []use{{from: U8, to: U8}}}
	var groups []*group
	for _, left := range []int64{0, 1} {
		h := hitOf(s, [2]int64{0, left}, [2]int64{rows, 2}, [2]int64{1, 1})
		groups = append(groups, &group{hits: []hit{h}, hull: h.hull, alike: true})
	}
	got := b.neededAmong(groups)
	if sum := got[0] + got[1]; sum != rows*3 { // two columns each; three are in the box
		t.Errorf("got %v, expected %d together", got, rows*3)
	}
}
