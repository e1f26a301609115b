package plan

import "slices"

// choose picks the cheapest way to read a group: straight into the arena, where it is one hit of the same type,
// or through staging, with as many of the outer dimensions kept as pays. Reads that are larger than a batch
// are cut by the caller.
func (b *builder) choose(s *slot, g *group) {
	elsize := b.elsize()
	g.cost = -1
	if h := &g.hits[0]; len(g.hits) == 1 && !b.casts(h) {
		p := newPattern(h.mem, h.lat.dst, elsize, slices.Clone(h.dims))
		if p.expressible(len(p.dims)) {
			g.take(p, b.bridgeCost(&p, len(p.dims)), exactDirect)
			if g.cost <= b.leastStaged(h) {
				return
			}
		}
	}
	exact := b.exactPattern(s, g)
	scatter := b.scatterOf(g)
	for k := len(exact.dims); k >= 0; k-- {
		if !exact.expressible(k) {
			continue
		}
		cost := b.bridgeCost(&exact, k) + scatter
		if g.cost >= 0 && cost >= g.cost {
			continue
		}
		p := exact.bridged(k)
		if !g.reachable(&p) {
			continue
		}
		switch k {
		case len(exact.dims):
			g.take(p, cost, exactStaged)
		case 0:
			g.take(p, cost, spanning)
		default:
			g.take(p, cost, coalesced)
		}
	}
}

// maxSegsPerRead bounds how many segments a read with more than three outer dimensions is spelled out in.
const maxSegsPerRead = 4096

// expressible reports whether the pattern, bridged at k, may be read: in a bounded number of segments, and
// without spans that overlap.
func (p *pattern) expressible(k int) bool {
	return (k == len(p.dims) || p.bridgeable(k)) && p.segments(k) <= maxSegsPerRead
}

// segments returns in how many segments the outermost k dimensions are spelled out: a segment has three.
func (p *pattern) segments(k int) int64 {
	if k <= 3 {
		return 1
	}
	return p.runs(k - 3)
}

// bridgeCost is the cost of bringing a pattern here, bridged at k: gaps inside the outermost k dimensions cross.
func (b *builder) bridgeCost(p *pattern, k int) float64 {
	runs := float64(p.runs(k))
	return b.costs.PerSegment*float64(p.segments(k)) + b.costs.PerRun*runs + b.costs.PerByte*runs*float64(p.span(k))
}

// cheapestBridge returns the least cost of bringing a pattern here, of all the ways that it can be bridged. One
// span over everything is always a way.
func (b *builder) cheapestBridge(p *pattern) float64 {
	least := b.bridgeCost(p, 0)
	for k := 1; k <= len(p.dims); k++ {
		if p.expressible(k) {
			least = min(least, b.bridgeCost(p, k))
		}
	}
	return least
}

// leastStaged bounds the cost of any read of a hit through staging from below: one segment of one run, and every
// byte moved twice. Most hits are cheaper straight into the arena than that, and need no comparison.
func (b *builder) leastStaged(h *hit) float64 {
	nbytes := float64(h.lat.nelems() * b.elsize())
	return b.costs.PerSegment + b.costs.PerRun + (b.costs.PerByte+b.costs.PerStaged)*nbytes
}

// take notes the way chosen so far.
func (g *group) take(p pattern, cost float64, shape readShape) {
	g.read, g.cost, g.shape = p, cost, shape
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

// reachable reports whether every hit can be found in what the pattern brings. A shard whose strides don't nest has
// addresses that are no unique sum of its strides; such bridges are left out.
func (g *group) reachable(p *pattern) bool {
	var out [maxWalk]int64
	for k := range g.hits {
		if _, ok := p.offsetOf(g.hits[k].mem, g.hits[k].dims, out[:]); !ok {
			return false
		}
	}
	return true
}

// elsize returns bytes per element of the source as served. All uses of a template have the same source.
func (b *builder) elsize() int64 { return b.uses[0].from.Size() }

// casts reports whether the hit's elements change their type on the way, which needs staging.
func (b *builder) casts(h *hit) bool { return b.uses[h.use].from != b.uses[h.use].to }

// scatterOf is the cost of moving a group's hits out of staging.
func (b *builder) scatterOf(g *group) float64 {
	if g.scatter == 0 {
		for k := range g.hits {
			p := newPattern(0, 0, b.elsize(), slices.Clone(g.hits[k].dims))
			g.scatter += b.costs.PerStaged*float64(p.nbytes()) + b.costs.PerScatterRun*float64(p.runs(len(p.dims)))
		}
	}
	return g.scatter
}
