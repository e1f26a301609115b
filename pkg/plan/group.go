package plan

import (
	"cmp"
	"slices"
)

// group is a set of hits that are read together, and the way chosen to do it.
type group struct {
	hits   []hit
	alike  bool    // all hits read the same elements in the same pattern
	shared bool    // other groups of the slot may read some of its elements too
	hull   box     // joint coordinates
	read   pattern // what is read: into the arena when shape is exactDirect, else packed into staging
	cost   float64
	shape  readShape
}

func (g *group) wire() int64 { return g.read.nbytes() }

// group forms the groups of a slot: hits that share elements are read together, since a byte needed twice
// crosses once; neighbours are read together where that is cheaper.
func (b *builder) group(s *slot, hits []hit) []group {
	groups := b.overlapping(s, hits)
	out := groups[:0]
	for _, g := range groups {
		if n := len(out); n > 0 {
			both := b.joined(s, &out[n-1], &g)
			if both.cost < out[n-1].cost+g.cost {
				out[n-1] = both
				continue
			}
		}
		out = append(out, g)
	}
	return out
}

// overlapping sweeps over the hits by address and joins those that may share elements.
func (b *builder) overlapping(s *slot, hits []hit) []group {
	slices.SortStableFunc(hits, func(a, c hit) int { return cmp.Compare(a.mem, c.mem) })
	var groups []group
	var open []int // groups whose span reaches beyond the current address
	for k := range hits {
		h := &hits[k]
		open = slices.DeleteFunc(open, func(g int) bool { return groups[g].reach(s) <= h.mem })
		into := -1
		for _, g := range open {
			if !groups[g].shares(h) {
				continue
			}
			if into < 0 {
				into = g
				groups[g].add(h)
				continue
			}
			groups[into].merge(&groups[g])
		}
		if into < 0 {
			groups = append(groups, group{hits: []hit{*h}, alike: true, hull: h.hull})
			open = append(open, len(groups)-1)
		}
		open = slices.DeleteFunc(open, func(g int) bool { return len(groups[g].hits) == 0 })
	}
	var out []group
	for k := range groups {
		if len(groups[k].hits) > 0 {
			out = append(out, b.settle(s, &groups[k])...)
		}
	}
	return out
}

// settle chooses how to read a group whose hits share elements: whole; cell by cell of the grid that the
// hits' boundaries make, so that nothing between them crosses; or, where steps of different size meet,
// hit by hit.
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
	var single []group
	for k := range g.hits {
		single = append(single, group{hits: g.hits[k : k+1 : k+1], alike: true, shared: true, hull: g.hits[k].hull})
		b.choose(s, &single[k])
	}
	try(single)
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

// maxCells bounds the grid that overlapping hits are cut by.
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

// reach returns the address past the last byte of the group, in the shard.
func (g *group) reach(s *slot) int64 {
	at := int64(1)
	for d := range g.hull.n {
		at += (g.hull.hi[d] - 1 - s.origin[d]) * s.mem[d]
	}
	return at
}

// shares reports whether a hit may share elements with the group.
func (g *group) shares(h *hit) bool {
	if !g.hull.overlaps(&h.hull) {
		return false
	}
	for k := range g.hits {
		if !apart(&g.hits[k], h) {
			return true
		}
	}
	return false
}

func (g *group) add(h *hit) {
	g.alike = g.alike && alike(&g.hits[0], h)
	g.hits = append(g.hits, *h)
	g.hull.join(&h.hull)
}

// merge takes over the hits of another group, which is empty afterwards.
func (g *group) merge(o *group) {
	for k := range o.hits {
		g.add(&o.hits[k])
	}
	o.hits = nil
}

// alike reports whether two hits read the same elements in the same order of dimensions.
func alike(a, b *hit) bool {
	return a.mem == b.mem && slices.EqualFunc(a.dims, b.dims, func(x, y pdim) bool { return x.n == y.n && x.src == y.src })
}

// apart reports whether two hits certainly share no element: their hulls don't meet, or both step by the
// same stride and stay in different parts of each step (rows of q, k and v interleaved in one tensor).
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

// joined returns the group that reads both, as one dense box.
func (b *builder) joined(s *slot, x, y *group) group {
	g := group{hits: append(slices.Clone(x.hits), y.hits...), shared: x.shared || y.shared, hull: x.hull}
	g.hull.join(&y.hull)
	b.choose(s, &g)
	return g
}

// choose picks the cheapest way to read a group. Reads that are larger than a batch are cut by the caller.
func (b *builder) choose(s *slot, g *group) {
	elsize := b.elsize()
	g.cost = -1
	if h := &g.hits[0]; len(g.hits) == 1 && !b.casts(h) {
		p := newPattern(h.mem, h.lat.dst, elsize, slices.Clone(h.dims))
		if len(p.dims) <= 3 || p.runs(len(p.dims)-3) <= maxSegsPerRead {
			g.take(p, b.readCost(&p), exactDirect)
			if g.cost <= b.leastStaged(h) {
				return
			}
		}
	}
	exact := b.exactPattern(s, g)
	scatter := b.scatterCost(g)
	for k := len(exact.dims); k >= 0; k-- {
		if !exact.bridgeable(k) && k < len(exact.dims) || k > 3 && exact.runs(k-3) > maxSegsPerRead {
			continue
		}
		p := exact.bridged(k)
		shape := coalesced
		switch {
		case k == len(exact.dims):
			shape = exactStaged
		case k == 0:
			shape = spanning
		}
		if !g.reachable(&p) {
			continue
		}
		g.take(p, b.readCost(&p)+scatter, shape)
	}
}

// leastStaged bounds the cost of any read of a hit through staging from below.
func (b *builder) leastStaged(h *hit) float64 {
	nbytes := float64(h.lat.nelems() * b.elsize())
	return b.costs.PerSegment + b.costs.PerRun + (b.costs.PerByte+b.costs.PerStaged)*nbytes
}

// maxSegsPerRead bounds how many segments a read with more than three outer dimensions is spelled out in.
const maxSegsPerRead = 4096

func (g *group) take(p pattern, cost float64, shape readShape) {
	if g.cost < 0 || cost < g.cost {
		g.read, g.cost, g.shape = p, cost, shape
	}
}

// exactPattern returns what the group's hits read without gaps: their own pattern if all are alike, else
// the dense box around them.
func (b *builder) exactPattern(s *slot, g *group) pattern {
	elsize := b.elsize()
	if g.alike {
		dims := slices.Clone(g.hits[0].dims)
		for i := range dims {
			dims[i].dst = dims[i].src
		}
		return newPattern(g.hits[0].mem, 0, elsize, dims)
	}
	return s.dense(&g.hull, elsize)
}

// dense returns the pattern that reads a box of the slot's shard.
func (s *slot) dense(hull *box, elsize int64) pattern {
	mem := int64(0)
	var dims []pdim
	for d := range hull.n {
		mem += (hull.lo[d] - s.origin[d]) * s.mem[d]
		dims = append(dims, pdim{hull.hi[d] - hull.lo[d], s.mem[d], s.mem[d]})
	}
	return newPattern(mem, 0, elsize, dims)
}

// reachable reports whether every hit can be found in what the pattern brings.
func (g *group) reachable(p *pattern) bool {
	var out [maxWalk]int64
	for k := range g.hits {
		if _, ok := p.offsetOf(g.hits[k].mem, g.hits[k].dims, out[:]); !ok {
			return false
		}
	}
	return true
}

func (b *builder) elsize() int64 { return b.uses[0].from.Size() }

func (b *builder) casts(h *hit) bool { return b.uses[h.use].from != b.uses[h.use].to }

// readCost is the cost of bringing a pattern here.
func (b *builder) readCost(p *pattern) float64 {
	segs, runs := int64(1), p.runs(len(p.dims))
	if len(p.dims) > 3 {
		segs = p.runs(len(p.dims) - 3)
	}
	return b.costs.PerSegment*float64(segs) + b.costs.PerRun*float64(runs) + b.costs.PerByte*float64(p.nbytes())
}

// scatterCost is the cost of moving a group's hits out of staging.
func (b *builder) scatterCost(g *group) float64 {
	cost := 0.0
	for k := range g.hits {
		h := &g.hits[k]
		p := newPattern(0, 0, b.elsize(), slices.Clone(h.dims))
		cost += b.costs.PerStaged*float64(p.nbytes()) + b.costs.PerScatterRun*float64(p.runs(len(p.dims)))
	}
	return cost
}
