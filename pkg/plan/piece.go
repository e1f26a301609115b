package plan

// maxPiecesPerRead bounds the boxes that one read is described by. Reads that fall into more (single
// elements of a diagonal) are described by none: nobody can verify a tile by them.
const maxPiecesPerRead = 4096

// emitPieces describes the elements of a walk as boxes of the published source. The walk's destination
// strides say where they lie: in an arena, or in staging.
func (b *builder) emitPieces(w *walk, u int32) {
	lats, ok := b.published.resolve(w)
	if !ok {
		return
	}
	from := len(b.t.pieces)
	for i := range lats {
		b.t.pieces = lats[i].boxes(len(b.s.shape), u, b.t.pieces)
		if len(b.t.pieces)-from > maxPiecesPerRead {
			b.t.pieces = b.t.pieces[:from]
			return
		}
	}
}

// boxes splits a lattice into boxes: along each source dimension the indices that touch stay together, all
// others are spelled out.
func (l *lattice) boxes(ndim int, u int32, out []templatePiece) []templatePiece {
	inner, spelled := l.touching(ndim)
	count := int64(1)
	for _, j := range spelled {
		if count *= l.size[j]; count > maxPiecesPerRead {
			return append(out, make([]templatePiece, maxPiecesPerRead+1)...)
		}
	}
	for n := range count {
		slab := make([]int64, 3*ndim)
		p := templatePiece{use: u, off: l.dst, lo: slab[:ndim:ndim], hi: slab[ndim : 2*ndim : 2*ndim], stride: slab[2*ndim:]}
		copy(p.lo, l.at[:ndim])
		for _, j := range spelled {
			i := n % l.size[j]
			n /= l.size[j]
			p.off += i * l.dstStride[j]
			for d := range ndim {
				p.lo[d] += i * l.step[j][d]
			}
		}
		for d := range ndim {
			p.hi[d] = p.lo[d] + 1
			if j := inner[d]; j >= 0 {
				p.hi[d] = p.lo[d] + l.size[j]
				p.stride[d] = l.dstStride[j]
			}
		}
		out = append(out, p)
	}
	return out
}

// touching finds for each source dimension the walk dimension that goes along it in steps of 1, so that its
// indices form one interval; -1 if none does. The other walk dimensions are spelled.
func (l *lattice) touching(ndim int) (inner [maxSourceDims]int, spelled []int) {
	for d := range inner {
		inner[d] = -1
	}
	for j := range l.n {
		moves, dim := 0, 0
		for d := range ndim {
			if l.step[j][d] != 0 {
				moves++
				dim = d
			}
		}
		if moves == 1 && l.step[j][dim] == 1 && inner[dim] < 0 {
			inner[dim] = j
		} else {
			spelled = append(spelled, j)
		}
	}
	return inner, spelled
}

// emitStagedPieces describes what a group brings to staging: exactly what its hits name if they are alike,
// else the whole box around them.
func (b *builder) emitStagedPieces(i uint32, g *group) {
	var strides [maxWalk]int64
	if g.alike {
		h := &g.hits[0]
		w := h.lat.walk
		off, ok := g.read.offsetOf(h.mem, h.dims, strides[:])
		if !ok {
			return
		}
		w.dst = off
		k := 0
		for j := range w.n {
			if w.size[j] > 1 {
				w.dstStride[j] = strides[k]
				k++
			}
		}
		b.emitPieces(&w, toStaging)
		return
	}
	s := &b.s.slots[i]
	w := walk{n: g.hull.n}
	mem, step := int64(0), int64(1)
	dims := make([]pdim, g.hull.n)
	for d := g.hull.n - 1; d >= 0; d-- {
		w.size[d], w.srcStride[d] = g.hull.hi[d]-g.hull.lo[d], step
		w.src += g.hull.lo[d] * step
		mem += (g.hull.lo[d] - s.origin[d]) * s.mem[d]
		dims[d] = pdim{n: w.size[d], src: s.mem[d]}
		step *= b.s.joint[d]
	}
	off, ok := g.read.offsetOf(mem, dims, strides[:])
	if !ok {
		return
	}
	w.dst = off
	copy(w.dstStride[:], strides[:w.n])
	b.emitPieces(&w, toStaging)
}
