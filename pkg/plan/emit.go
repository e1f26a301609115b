package plan

import (
	"cmp"
	"slices"
)

// emitAll writes the groups of a slot. Where several read the same bytes, the first one is said to need them.
func (b *builder) emitAll(i uint32, groups []group) {
	var before group // what shared groups have read so far
	for k := range groups {
		g := &groups[k]
		if !g.shared {
			b.emit(i, g, b.neededBytes(g))
			continue
		}
		had := b.neededBytes(&before)
		if len(before.hits) == 0 {
			before.hull = g.hull
		}
		before.hits = append(before.hits, g.hits...)
		before.hull.join(&g.hull)
		b.emit(i, g, b.neededBytes(&before)-had)
	}
}

// emit writes a group into the template's columns. needed counts bytes of the source that no group before it needed.
func (b *builder) emit(i uint32, g *group, needed int64) {
	t := b.t
	r := read{
		slot: i, segs: uint32(len(t.segs)), scatters: uint32(len(t.scatters)), pieces: uint32(len(t.pieces)),
		wire: g.wire(), runs: g.read.runs(len(g.read.dims)), shape: g.shape,
	}
	if g.shape == exactDirect {
		b.emitSegs(&g.read, g.hits[0].use)
		b.emitPieces(&g.hits[0].lat.walk, g.hits[0].use)
	} else {
		r.staging = r.wire
		b.emitSegs(&g.read, toStaging)
		for k := range g.hits {
			b.emitScatter(&g.read, &g.hits[k])
		}
		b.emitStagedPieces(i, g)
	}
	r.walks = uint32(len(t.walks))
	for k := range g.hits {
		t.walks = g.hits[k].lat.row(append(t.walks, int64(g.hits[k].use)))
	}
	r.walksEnd = uint32(len(t.walks))
	r.segsEnd, r.scatsEnd, r.piecesEnd = uint32(len(t.segs)), uint32(len(t.scatters)), uint32(len(t.pieces))
	r.needed = needed
	for k := range g.hits {
		p := newPattern(0, 0, b.elsize(), slices.Clone(g.hits[k].dims))
		r.exactRuns += p.runs(len(p.dims))
	}
	t.reads = append(t.reads, r)
	t.wire += r.wire
	t.staged += r.staging
	t.needed += r.needed
	t.exactRuns += r.exactRuns
}

// emitSegs writes a pattern as segments, the dimensions beyond the innermost three spelled out.
func (b *builder) emitSegs(p *pattern, u int32) {
	outer := max(0, len(p.dims)-3)
	inner := p.dims[outer:]
	seg := templateSeg{use: u, run: p.run, n: [3]int64{1, 1, 1}}
	for k, d := range inner {
		at := 3 - len(inner) + k
		seg.n[at], seg.srcStride[at], seg.dstStr[at] = d.n, d.src, d.dst
	}
	for n := range p.runs(outer) {
		seg.src, seg.dst = p.src, p.dst
		for k := outer - 1; k >= 0; k-- {
			i := n % p.dims[k].n
			n /= p.dims[k].n
			seg.src += i * p.dims[k].src
			seg.dst += i * p.dims[k].dst
		}
		b.t.segs = append(b.t.segs, seg)
	}
}

// emitScatter writes how one hit gets from staging to the arena.
func (b *builder) emitScatter(p *pattern, h *hit) {
	n := len(h.dims)
	s := templateScatter{use: h.use, dst: h.lat.dst, shape: make([]int64, n), srcStr: make([]int64, n), dstSt: make([]int64, n)}
	s.src, _ = p.offsetOf(h.mem, h.dims, s.srcStr)
	for k, d := range h.dims {
		s.shape[k], s.dstSt[k] = d.n, d.dst
	}
	b.t.scatters = append(b.t.scatters, s)
}

// maxNeededRuns bounds how many runs are compared to count what several hits need together.
const maxNeededRuns = 1 << 16

// neededBytes counts the bytes of the source that the group's hits need, each once. Hits in so many runs
// that comparing them would cost more than planning them are taken to share nothing, or to fill their hull.
func (b *builder) neededBytes(g *group) int64 {
	if len(g.hits) == 0 { // the classic rule pulls shards that nobody needs
		return 0
	}
	if g.alike {
		return g.hits[0].lat.nelems() * b.elsize()
	}
	sum, runs := int64(0), int64(0)
	patterns := make([]pattern, len(g.hits))
	for k := range g.hits {
		dims := slices.Clone(g.hits[k].dims)
		for i := range dims {
			dims[i].dst = dims[i].src
		}
		patterns[k] = newPattern(g.hits[k].mem, g.hits[k].mem, b.elsize(), dims)
		sum += patterns[k].nbytes()
		runs += patterns[k].runs(len(patterns[k].dims))
	}
	if runs > maxNeededRuns {
		return min(sum, g.hull.nelems()*b.elsize())
	}
	return union(patterns, runs)
}

// union counts the bytes that the patterns' sources hold, each once.
func union(patterns []pattern, runs int64) int64 {
	type span struct{ lo, hi int64 }
	spans := make([]span, 0, runs)
	for k := range patterns {
		p := &patterns[k]
		p.each(func(src, _ int64) bool {
			spans = append(spans, span{src, src + p.run})
			return true
		})
	}
	slices.SortFunc(spans, func(x, y span) int { return cmp.Compare(x.lo, y.lo) })
	sum, end := int64(0), spans[0].lo
	for _, s := range spans {
		if s.hi > end {
			sum += s.hi - max(s.lo, end)
			end = s.hi
		}
	}
	return sum
}
