package plan

import "slices"

// emit writes a group into the template's columns.
func (b *builder) emit(i uint32, g *group) {
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
	r.needed = b.neededBytes(g)
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

// neededBytes counts the bytes of the source that the group's hits need, each once.
func (b *builder) neededBytes(g *group) int64 {
	if g.alike {
		return g.hits[0].lat.nelems() * b.elsize()
	}
	var parts []box
	sum := int64(0)
	for k := range g.hits {
		h := &g.hits[k]
		sum += h.lat.nelems()
		if h.hull.nelems() != h.lat.nelems() { // steps: no longer boxes
			return min(b.sumElems(g), g.hull.nelems()) * b.elsize()
		}
		fresh := []box{h.hull}
		for i := range parts {
			var rest []box
			for f := range fresh {
				rest = fresh[f].minus(&parts[i], rest)
			}
			fresh = rest
		}
		parts = append(parts, fresh...)
	}
	sum = 0
	for i := range parts {
		sum += parts[i].nelems()
	}
	return sum * b.elsize()
}

// sumElems counts elements that are needed twice twice.
func (b *builder) sumElems(g *group) int64 {
	sum := int64(0)
	for k := range g.hits {
		sum += g.hits[k].lat.nelems()
	}
	return sum
}
