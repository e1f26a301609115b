package plan

import (
	"cmp"
	"slices"
)

// group is a set of hits that are read together, and the way chosen to do it.
type group struct {
	hits    []hit
	alike   bool    // all hits read the same elements in the same pattern
	shared  bool    // other groups of the slot may read some of its elements too
	hull    box     // joint coordinates
	read    pattern // what is read: into the arena when shape is exactDirect, else packed into staging
	cost    float64 // nanoseconds, by the cost model
	scatter float64 // nanoseconds of it for moving the hits out of staging; 0 while nobody asked
	shape   readShape
}

// wire returns the bytes that cross when the group is read.
func (g *group) wire() int64 { return g.read.nbytes() }

// group forms the groups of a slot: hits that share elements are read together, since a byte needed twice
// crosses once; neighbours are read together where that is cheaper.
func (b *builder) group(s *slot, hits []hit) []group {
	groups := b.overlapping(s, hits)
	out := groups[:0]
	joined := false // the last group took others in, and must be chosen for anew
	for _, g := range groups {
		if n := len(out); n > 0 && b.join(s, &out[n-1], &g) {
			joined = true
			continue
		}
		if joined {
			b.choose(s, &out[len(out)-1])
		}
		out, joined = append(out, g), false
	}
	if joined {
		b.choose(s, &out[len(out)-1])
	}
	return out
}

// join lets a group take in its neighbour, to be read as one dense box, if that is cheaper. How that box is
// read is left to choose: a source of which every row is wanted by a copy of its own joins thousands.
func (b *builder) join(s *slot, g, next *group) bool {
	hull := g.hull
	hull.join(&next.hull)
	dense := s.dense(&hull, b.elsize())
	scatter := b.scatterOf(g) + b.scatterOf(next)
	cost := b.cheapestBridge(&dense) + scatter
	if cost >= g.cost+next.cost {
		return false
	}
	g.hits, g.hull = append(g.hits, next.hits...), hull
	g.alike, g.shared = false, g.shared || next.shared
	g.cost, g.scatter = cost, scatter
	return true
}

// overlapping joins hits that may share elements, and settles how each set of them is read. The sets come in
// order of the shard's addresses, and so do the hits in each.
func (b *builder) overlapping(s *slot, hits []hit) []group {
	slices.SortStableFunc(hits, func(a, c hit) int { return cmp.Compare(a.mem, c.mem) })
	var out []group
	for _, set := range sharing(hits) {
		g := group{alike: true, hull: hits[set[0]].hull}
		for _, k := range set {
			g.add(&hits[k])
		}
		out = append(out, b.settle(s, &g)...)
	}
	return out
}

// sharing returns sets of hits such that hits of different sets certainly share no element, as indices,
// ascending. It sweeps along the dimension that tells most hits apart, and compares a hit with those sets only
// that reach beyond the place where it begins.
func sharing(hits []hit) [][]int {
	switch len(hits) {
	case 0:
		return nil
	case 1:
		return [][]int{{0}}
	}
	hulls, order := make([]box, len(hits)), make([]int, len(hits))
	for k := range hits {
		hulls[k], order[k] = hits[k].hull, k
	}
	w := sweep{hits: hits, dim: sweepDim(hulls)}
	sortBy(order, func(k int) int64 { return hulls[k].lo[w.dim] })
	for _, k := range order {
		w.add(k)
	}
	sets := slices.DeleteFunc(w.sets, func(set []int) bool { return len(set) == 0 })
	for _, set := range sets {
		slices.Sort(set)
	}
	sortBy(sets, func(set []int) int64 { return int64(set[0]) })
	return sets
}

// sweep builds sets of hits that may share elements, from hits in order of their lower bounds.
type sweep struct {
	hits []hit
	dim  int
	sets [][]int // empty: taken over by another one
	hull []box   // of each set
	open []int   // sets that reach beyond the place where the last hit began
}

// add puts hit k into the first set that it may share elements with, and joins all others with that.
func (w *sweep) add(k int) {
	h := &w.hits[k]
	into := -1
	w.open = slices.DeleteFunc(w.open, func(i int) bool {
		switch {
		case w.hull[i].hi[w.dim] <= h.hull.lo[w.dim]:
			return true
		case !w.mayShare(i, h):
			return false
		case into < 0:
			into = i
			return false
		}
		w.sets[into] = append(w.sets[into], w.sets[i]...)
		w.hull[into].join(&w.hull[i])
		w.sets[i] = nil
		return true
	})
	if into < 0 {
		into = len(w.sets)
		w.sets, w.hull, w.open = append(w.sets, nil), append(w.hull, h.hull), append(w.open, into)
	}
	w.sets[into] = append(w.sets[into], k)
	w.hull[into].join(&h.hull)
}

// mayShare reports whether a hit may share elements with one of set i.
func (w *sweep) mayShare(i int, h *hit) bool {
	return w.hull[i].overlaps(&h.hull) &&
		slices.ContainsFunc(w.sets[i], func(k int) bool { return !apart(&w.hits[k], h) })
}

// settle chooses how to read a group whose hits share elements: whole; cell by cell of the grid that the
// hits' boundaries make, so that nothing between them crosses; or, where steps of different size meet,
// pattern by pattern, each once for all hits that have it.
func (b *builder) settle(s *slot, g *group) []group {
	b.choose(s, g)
	best, cost := []group{*g}, g.cost
	if g.alike {
		return best
	}
	try := func(groups []group) {
		sum := 0.0
		for k := range groups {
			sum += groups[k].cost
		}
		if sum < cost && len(groups) > 0 {
			best, cost = groups, sum
		}
	}
	apart := byPattern(g.hits)
	for k := range apart {
		b.choose(s, &apart[k])
	}
	try(apart)
	var celled []group
	for _, cell := range cells(g) {
		c := group{}
		for k := range g.hits {
			lats := g.hits[k].lat.cut(&cell, nil)
			for i := range lats {
				h, _ := newHit(&lats[i], s, nil)
				if len(c.hits) == 0 {
					c = group{hits: []hit{h}, alike: true, hull: h.hull}
				} else {
					c.add(&h)
				}
			}
		}
		if len(c.hits) > 0 {
			b.choose(s, &c)
			celled = append(celled, c)
		}
	}
	try(celled)
	return best
}

// byPattern returns a group for each set of hits that read the same elements in the same pattern.
func byPattern(hits []hit) []group {
	var out []group
	var seen rows
	var row []int64
	for k := range hits {
		h := &hits[k]
		row = append(row[:0], h.mem)
		for _, d := range h.dims {
			row = append(row, d.n, d.src)
		}
		id, fresh := seen.id(row)
		if fresh {
			out = append(out, group{alike: true, shared: true, hull: h.hull})
		}
		out[id].add(h)
	}
	return out
}

// maxCells bounds the grid that overlapping hits are cut by. Ranks of one host that need overlapping rows or columns
// make some dozens; more mean that so many reads would cost more than the bytes between them.
const maxCells = 256

// cells cuts a group's hull at the boundaries of its hits; nothing when that makes too many cells.
func cells(g *group) []box {
	out := []box{g.hull}
	for d := range g.hull.n {
		var cuts []int64
		for k := range g.hits {
			cuts = append(cuts, g.hits[k].hull.lo[d], g.hits[k].hull.hi[d])
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		if len(out)*len(cuts) > maxCells {
			return nil
		}
		var next []box
		for _, b := range out {
			for i := 1; i < len(cuts); i++ {
				b.lo[d], b.hi[d] = cuts[i-1], cuts[i]
				next = append(next, b)
			}
		}
		out = next
	}
	return out
}

// add takes a hit in. The group's first one decides what the others are compared with.
func (g *group) add(h *hit) {
	g.alike = g.alike && (len(g.hits) == 0 || alike(&g.hits[0], h))
	g.hits = append(g.hits, *h)
	g.hull.join(&h.hull)
}

// alike reports whether two hits read the same elements in the same order of dimensions.
func alike(a, b *hit) bool {
	return a.mem == b.mem && slices.EqualFunc(a.dims, b.dims, func(x, y pdim) bool { return x.n == y.n && x.src == y.src })
}

// apart reports whether two hits certainly share no element: their hulls don't meet, or both step by the
// same stride and stay in different parts of each step (rows of q, k and v interleaved in one tensor).
//
// It may say no where yes were right: then two hits are read together that need not be, or one by one by settle.
// A wrong yes would make a byte cross twice and be counted twice, but no byte would be wrong.
func apart(a, b *hit) bool {
	if !a.hull.overlaps(&b.hull) {
		return true
	}
	for _, d := range a.dims {
		ra, oka := within(a, d.src)
		rb, okb := within(b, d.src)
		if !oka || !okb {
			continue
		}
		delta := (b.mem - a.mem) % d.src
		if delta < 0 {
			delta += d.src
		}
		if delta >= ra && delta+rb <= d.src {
			return true
		}
	}
	return false
}

// within returns the bytes that a hit takes of each period of the stride: what its dimensions that don't
// move by whole periods reach. One byte stands for the element: strides and offsets are multiples of it.
func within(h *hit, period int64) (int64, bool) {
	n := int64(1)
	for _, d := range h.dims {
		if d.src%period != 0 {
			n += (d.n - 1) * d.src
		}
	}
	return n, n <= period
}
