package plan

import (
	"cmp"
	"slices"
)

// pattern is a strided read: runs of bytes repeated over outer dimensions, outermost first.
type pattern struct {
	src, dst int64 // bytes at index 0
	run      int64 // bytes
	dims     []pdim
}

// pdim is a dimension of a pattern: n indices, and how far each moves on both sides. Both strides are positive.
type pdim struct {
	n        int64
	src, dst int64 // bytes
}

// newPattern orders dimensions by source stride and joins those without gaps on both sides. The innermost
// becomes the run if its elements touch on both sides. The order of dimensions is free, since it is only the order
// in which runs are read; by source stride it is the order of addresses, which is what a sender's memory likes and
// what offsetOf needs.
func newPattern(src, dst, elsize int64, dims []pdim) pattern {
	p := pattern{src: src, dst: dst, run: elsize, dims: dims[:0]}
	slices.SortStableFunc(dims, func(a, b pdim) int {
		if c := cmp.Compare(b.src, a.src); c != 0 {
			return c
		}
		return cmp.Compare(b.dst, a.dst)
	})
	for _, d := range dims {
		if d.n == 1 {
			continue
		}
		if k := len(p.dims) - 1; k >= 0 && p.dims[k].src == d.n*d.src && p.dims[k].dst == d.n*d.dst {
			d.n *= p.dims[k].n
			p.dims[k] = d
			continue
		}
		p.dims = append(p.dims, d)
	}
	if k := len(p.dims) - 1; k >= 0 && p.dims[k].src == elsize && p.dims[k].dst == elsize {
		p.run *= p.dims[k].n
		p.dims = p.dims[:k]
	}
	return p
}

// runs returns the number of contiguous runs of the outermost k dimensions.
func (p *pattern) runs(k int) int64 {
	n := int64(1)
	for _, d := range p.dims[:k] {
		n *= d.n
	}
	return n
}

// span returns the bytes from the first to past the last byte of everything inside the outermost k dimensions.
func (p *pattern) span(k int) int64 {
	n := p.run
	for _, d := range p.dims[k:] {
		n += (d.n - 1) * d.src
	}
	return n
}

// bridgeable reports, of k outer dimensions, whether the inside may be read as one span: spans that overlap would
// cross twice.
func (p *pattern) bridgeable(k int) bool {
	return k == 0 || p.dims[k-1].src >= p.span(k)
}

// bridged returns the pattern that reads the inside of the outermost k dimensions as one span, gaps
// included, packed one span after the other.
func (p *pattern) bridged(k int) pattern {
	q := pattern{src: p.src, run: p.span(k), dims: slices.Clone(p.dims[:k])}
	step := q.run
	for i := k - 1; i >= 0; i-- {
		q.dims[i].dst = step
		step *= q.dims[i].n
	}
	return q
}

// nbytes returns the bytes of all runs: what crosses, and what is packed in staging.
func (p *pattern) nbytes() int64 { return p.run * p.runs(len(p.dims)) }

// offsetOf translates a strided region of the source into the packed bytes of a bridged pattern: the
// offset of its first element, and a stride for each of dims. It fails when the region leaves the pattern
// or its indices carry from one of the pattern's dimensions into another.
//
// The pattern's source strides are taken as digits, outermost first, as the resolver does with shapes: an address
// inside is so many steps of each dimension, and the packed bytes are the same digits with other weights. Strides
// of the region are split the same way, which is right as long as no digit overflows; that is what reach checks.
func (p *pattern) offsetOf(src int64, dims []pdim, out []int64) (int64, bool) {
	rest := src - p.src
	if rest < 0 {
		return 0, false
	}
	off := int64(0)
	strides := make([]int64, len(dims))
	for i := range dims {
		strides[i], out[i] = dims[i].src, 0
	}
	for _, d := range p.dims {
		reach := rest / d.src
		off += reach * d.dst
		rest %= d.src
		for i := range dims {
			q := strides[i] / d.src
			out[i] += q * d.dst
			strides[i] %= d.src
			reach += q * (dims[i].n - 1)
		}
		if reach >= d.n {
			return 0, false
		}
	}
	reach := rest
	for i := range dims {
		out[i] += strides[i]
		reach += strides[i] * (dims[i].n - 1)
	}
	return off + rest, reach < p.run
}
