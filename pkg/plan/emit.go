package plan

import (
	"cmp"
	"math"
	"slices"
)

// emitAll writes the groups of a slot. Where several read the same bytes, one of them is said to need them.
func (b *builder) emitAll(i uint32, groups []group) {
	var shared []*group
	for k := range groups {
		if groups[k].shared {
			shared = append(shared, &groups[k])
		}
	}
	among := b.neededAmong(shared)
	for k := range groups {
		g := &groups[k]
		if !g.shared {
			b.emit(i, g, b.needed(g))
			continue
		}
		b.emit(i, g, among[0])
		among = among[1:]
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

// emitSegs writes a pattern as segments, the dimensions beyond the innermost three spelled out: three are what a
// segment has, and what rows of columns of heads need. The outermost ones are spelled out since they are mostly the
// shortest.
func (b *builder) emitSegs(p *pattern, u int32) {
	outer := max(0, len(p.dims)-3)
	inner := p.dims[outer:]
	seg := templateSeg{use: u, run: p.run, n: [3]int64{1, 1, 1}}
	for k, d := range inner {
		at := 3 - len(inner) + k
		seg.n[at], seg.srcStride[at], seg.dstStr[at] = d.n, d.src, d.dst
	}
	if spelled := p.runs(outer); spelled > maxSegsPerSource-int64(len(b.t.segs)) {
		b.err = errManySegs
		return
	} else if spelled > 1 {
		b.t.segs = slices.Grow(b.t.segs, int(spelled))
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

// needed counts the bytes of the source that one group's hits need, each once.
func (b *builder) needed(g *group) int64 {
	if len(g.hits) == 0 { // the classic rule pulls shards that nobody needs
		return 0
	}
	if g.alike {
		return g.hits[0].lat.nelems() * b.elsize()
	}
	return b.neededAmong([]*group{g})[0]
}

// neededAmong counts the bytes of the source that the groups' hits need, each byte for the first group, by
// address, that does. Hits in so many runs that comparing them would cost more than planning them are taken to
// fill the box around them, or to share nothing if that is less.
func (b *builder) neededAmong(groups []*group) []int64 {
	out := make([]int64, len(groups))
	var spans []span
	sum, runs := int64(0), int64(0)
	for k, g := range groups {
		for i := range g.hits {
			dims := slices.Clone(g.hits[i].dims)
			for d := range dims {
				dims[d].dst = dims[d].src // where the bytes land is nobody's concern here
			}
			p := newPattern(g.hits[i].mem, 0, b.elsize(), dims)
			out[k] += p.nbytes()
			if runs += p.runs(len(p.dims)); runs <= maxNeededRuns {
				spans = p.spans(k, spans)
			}
		}
		sum += out[k]
	}
	if runs <= maxNeededRuns {
		clear(out)
		union(spans, out)
		return out
	}
	hull := hullOf(groups)
	left := min(sum, hull.nelems()*b.elsize())
	for k := range out {
		out[k] = min(out[k], left)
		left -= out[k]
	}
	return out
}

// hullOf returns the smallest box that holds all groups.
func hullOf(groups []*group) box {
	hull := groups[0].hull
	for _, g := range groups[1:] {
		hull.join(&g.hull)
	}
	return hull
}

// span is a run of bytes of a shard's memory that a group needs.
type span struct {
	lo, hi int64
	group  int
}

// spans appends the runs of a pattern's source.
func (p *pattern) spans(group int, out []span) []span {
	p.each(func(src, _ int64) bool {
		out = append(out, span{src, src + p.run, group})
		return true
	})
	return out
}

// union adds up the bytes of the spans for each group, each byte once.
func union(spans []span, nbytes []int64) {
	slices.SortFunc(spans, func(x, y span) int { return cmp.Or(cmp.Compare(x.lo, y.lo), cmp.Compare(x.group, y.group)) })
	end := int64(math.MinInt64)
	for _, s := range spans {
		if s.hi > end {
			nbytes[s.group] += s.hi - max(s.lo, end)
			end = s.hi
		}
	}
}
