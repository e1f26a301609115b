package plan

import "fmt"

// template is the plan of one source: how a sharding serves a list of uses. Sources that are cut alike and
// used alike share it; only places differ.
type template struct {
	holders  [][]holder // of each slot of the sharding
	reads    []read
	segs     []templateSeg
	scatters []templateScatter
	pieces   []templatePiece
	fromTo   [][2]DType // per use
	walks    []int64    // of each read's hits: use, then walk.row
	kept     []templateKept

	needed    int64 // bytes of the source that some use needs, each counted once
	wire      int64
	staged    int64
	saved     int64 // bytes of the source that some use needs and the base holds, each counted once
	keptBytes int64 // bytes of arenas that are kept
	exactRuns int64 // contiguous runs if every use were read exactly
	short     int   // 1 + the first use that the slots don't cover; 0: none
}

// read is what is fetched together from one slot: ranges of the template's columns.
type read struct {
	slot               uint32
	segs, segsEnd      uint32
	scatters, scatsEnd uint32
	pieces, piecesEnd  uint32
	walks, walksEnd    uint32
	wire, runs         int64
	staging            int64 // bytes; 0: it lands in the arenas
	needed, exactRuns  int64 // bytes of the source that its hits need and no read before it does; their runs if read exactly
	shape              readShape
}

// readShape says which of the ways to read was the cheapest.
type readShape uint8

const (
	exactDirect readShape = iota // exact runs, straight into the arena
	exactStaged                  // exact runs, through staging
	coalesced                    // short gaps are read too
	spanning                     // one span over everything needed
)

// String is how explanations call the shape.
func (s readShape) String() string {
	return [...]string{"exact", "exact, staged", "coalesced", "spanning"}[s]
}

// toStaging as the use of a segment or piece: its bytes land in staging.
const toStaging = -1

// templateSeg is a Segment whose places are relative.
type templateSeg struct {
	use                  int32 // or toStaging
	src                  int64 // bytes from the shard's first element
	dst                  int64 // bytes from the copy's first element, or from the read's staging
	run                  int64
	n, srcStride, dstStr [3]int64
}

// templateScatter is a Scatter whose places are relative.
type templateScatter struct {
	use                  int32
	src, dst             int64 // bytes from the read's staging, from the copy's first element
	shape, srcStr, dstSt []int64
}

// templatePiece is a Piece whose places are relative.
type templatePiece struct {
	use    int32 // or toStaging
	off    int64 // bytes from the copy's first element, or from the read's staging
	lo, hi []int64
	stride []int64 // bytes
}

// templateKept is a region of a copy that is not written, since the base holds it already.
type templateKept struct {
	use     int32
	pattern // dst: bytes from the copy's first element; src is the same
}

// use is one copy of the source, ready for cutting: its walks, one unless the capture reorders elements,
// and the cast if its type differs.
type use struct {
	walks    []walk
	from, to DType
}

// nelems counts the elements that the copy writes.
func (u *use) nelems() int64 {
	n := int64(0)
	for i := range u.walks {
		n += u.walks[i].nelems()
	}
	return n
}

// hit is the part of a use that one slot serves.
type hit struct {
	use  int32
	lat  *lattice
	hull box   // joint coordinates
	mem  int64 // bytes from the shard's first element
	dims []pdim
}

// builder makes templates. Its limits are bytes.
type builder struct {
	prices       []Costs // by rank of the table
	costs        Costs   // of the slot at hand
	batch, stage int64
	classic      *classicRule

	published *resolver
	s         *sharding
	uses      []use
	parts     [][]lattice // per use
	t         *template
	held      []int64 // elements of each use that were found in slots
	err       error   // that the source falls into too many reads or segments; nothing is added any more
}

// How many reads and segments one source may fall into. At 32 MiB a read that is 32 TiB; beyond, either a size
// is a lie or a limit of bytes was set far too low, and the plan would fill the memory.
const (
	maxReadsPerSource = 1 << 20
	maxSegsPerSource  = 1 << 19
)

// Why a source can't be planned.
var (
	errManyParts = fmt.Errorf("%w: the view falls into more than %d parts", ErrLimit, maxParts)
	errManyReads = fmt.Errorf("%w: the source would take more than %d reads: raise BatchBytes or StagingBytes", ErrLimit, maxReadsPerSource)
	errManySegs  = fmt.Errorf("%w: the source would take more than %d segments", ErrLimit, maxSegsPerSource)
)

// build plans one source. The error means that it would fall into more parts, slots, reads or segments than are
// sensible.
func (b *builder) build(s *sharding, uses []use) (*template, error) {
	if s.err != nil {
		return nil, s.err
	}
	b.s, b.uses, b.err = s, uses, nil
	b.t = &template{holders: make([][]holder, len(s.slots))}
	for i := range s.slots {
		b.t.holders[i] = s.slots[i].from
	}
	for i := range uses {
		b.t.fromTo = append(b.t.fromTo, [2]DType{uses[i].from, uses[i].to})
	}
	b.published = newResolver(s.shape)
	if len(s.shape) == 0 {
		b.published = newResolver([]int64{1})
	}
	if !b.resolve() {
		return nil, errManyParts
	}
	b.held = make([]int64, len(uses))
	for i := range s.slots {
		b.price(uint32(i))
		b.slot(uint32(i), s.slots[i].box, nil)
	}
	for i := range s.kept {
		b.keep(&s.kept[i])
	}
	b.cover()
	return b.t, b.err
}

// resolve turns the uses into lattices of joint coordinates. False: too many.
func (b *builder) resolve() bool {
	r := newResolver(b.s.joint)
	b.parts = b.parts[:0]
	for i := range b.uses {
		var lats []lattice
		for k := range b.uses[i].walks {
			out, ok := r.resolve(&b.uses[i].walks[k])
			if !ok {
				return false
			}
			for p := range out {
				out[p].use = int32(i)
			}
			lats = append(lats, out...)
		}
		b.parts = append(b.parts, lats)
	}
	return true
}

// cover notes the first use of which the slots hold too little. Slots are disjoint, so counting suffices.
func (b *builder) cover() {
	for u := range b.uses {
		if b.held[u] != b.uses[u].nelems() {
			b.t.short = u + 1
			return
		}
	}
}

// slot plans what a box of slot i serves. When a read would be larger than a batch may be, the box is cut.
func (b *builder) slot(i uint32, part box, within []hit) {
	if b.err != nil {
		return
	}
	hits := b.cutHits(i, &part, within)
	if len(hits) == 0 && !b.whole() {
		return
	}
	if within == nil {
		for k := range hits {
			b.held[hits[k].use] += hits[k].lat.nelems()
		}
	}
	groups := b.groups(i, &part, hits)
	over := int64(1)
	for k := range groups {
		limit := b.batch
		if groups[k].shape != exactDirect {
			limit = min(limit, b.stage)
		}
		over = max(over, ceilDiv(groups[k].wire(), limit))
	}
	if over > maxReadsPerSource || len(b.t.reads)+len(groups) > maxReadsPerSource {
		b.err = errManyReads
		return
	}
	if over > 1 {
		if dim, step := b.splitAt(&part, over); step > 0 {
			for lo := part.lo[dim]; lo < part.hi[dim]; {
				p := part
				p.lo[dim] = lo
				p.hi[dim] = min(part.hi[dim], lo+step)
				lo = p.hi[dim]
				b.slot(i, p, hits)
			}
			return
		}
	}
	b.emitAll(i, groups)
}

// splitAt says how to cut a box in about n parts: along its first dimension that can be cut, on whole
// published rows where those are fine enough, so that digests of tiles stay checkable. The parts are cut again if
// they are still too large, since a read's bytes need not shrink with its box: gaps go with it.
func (b *builder) splitAt(part *box, n int64) (dim int, step int64) {
	for d := range part.n {
		extent := part.hi[d] - part.lo[d]
		if extent == 1 {
			continue
		}
		step := ceilDiv(extent, n)
		if u := b.s.unit; d == 0 && step >= u {
			step -= step % u
		}
		return d, min(step, ceilDiv(extent, 2))
	}
	return 0, 0
}

// cutHits returns the parts of the uses that lie in a part of slot i; of those of a larger part, if they
// are known.
func (b *builder) cutHits(i uint32, part *box, within []hit) []hit {
	var lats []lattice
	if within != nil {
		for k := range within {
			lats = within[k].lat.cut(part, lats)
		}
	} else {
		for u := range b.parts {
			for p := range b.parts[u] {
				lats = b.parts[u][p].cut(part, lats)
			}
		}
	}
	ndims := 0
	for k := range lats {
		ndims += lats[k].n
	}
	dims := make([]pdim, 0, ndims) // of all hits: one allocation instead of thousands
	hits := make([]hit, len(lats))
	for k := range lats {
		hits[k], dims = newHit(&lats[k], &b.s.slots[i], dims)
	}
	return hits
}

// newHit keeps the lattice, and appends the hit's dimensions to dims.
func newHit(l *lattice, s *slot, dims []pdim) (hit, []pdim) {
	h := hit{use: l.use, lat: l, hull: l.hull(s.box.n)}
	for d := range s.box.n {
		h.mem += (h.hull.lo[d] - s.origin[d]) * s.mem[d]
	}
	from := len(dims)
	for j := range l.n {
		if l.size[j] == 1 {
			continue
		}
		dim := pdim{n: l.size[j], dst: l.dstStride[j]}
		for d := range s.box.n {
			dim.src += l.step[j][d] * s.mem[d]
		}
		dims = append(dims, dim)
	}
	h.dims = dims[from:len(dims):len(dims)]
	return h, dims
}
