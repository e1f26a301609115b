package plan

import "slices"

// box is an axis-aligned box of source coordinates.
type box struct {
	n      int
	lo, hi [maxSourceDims]int64
}

// boxOf reads a box as layouts write it: lo0,hi0,lo1,hi1,….
func boxOf(flat []int64) box {
	b := box{n: len(flat) / 2}
	for d := range b.n {
		b.lo[d], b.hi[d] = flat[2*d], flat[2*d+1]
	}
	return b
}

// flat writes the box as boxOf reads it.
func (b *box) flat() []int64 {
	out := make([]int64, 0, 2*b.n)
	for d := range b.n {
		out = append(out, b.lo[d], b.hi[d])
	}
	return out
}

// nelems returns the number of elements; 1 for no dimensions.
func (b *box) nelems() int64 {
	n := int64(1)
	for d := range b.n {
		n *= b.hi[d] - b.lo[d]
	}
	return n
}

// overlaps reports whether the boxes share an element. Empty boxes share none with anything.
func (b *box) overlaps(o *box) bool {
	for d := range b.n {
		if max(b.lo[d], o.lo[d]) >= min(b.hi[d], o.hi[d]) {
			return false
		}
	}
	return true
}

// join grows b to the smallest box that holds o too.
func (b *box) join(o *box) {
	for d := range b.n {
		b.lo[d] = min(b.lo[d], o.lo[d])
		b.hi[d] = max(b.hi[d], o.hi[d])
	}
}

// meet returns what both boxes hold; an empty box, with lo = hi, when that is nothing.
func (b *box) meet(o *box) box {
	m := *b
	for d := range b.n {
		m.lo[d] = max(b.lo[d], o.lo[d])
		m.hi[d] = max(min(b.hi[d], o.hi[d]), m.lo[d])
	}
	return m
}

// minus appends disjoint boxes that make up b without o, at most two a dimension.
func (b *box) minus(o *box, out []box) []box {
	if !b.overlaps(o) {
		return append(out, *b)
	}
	rest := *b
	for d := range b.n {
		if rest.lo[d] < o.lo[d] {
			part := rest
			part.hi[d] = o.lo[d]
			out = append(out, part)
			rest.lo[d] = o.lo[d]
		}
		if rest.hi[d] > o.hi[d] {
			part := rest
			part.lo[d] = o.hi[d]
			out = append(out, part)
			rest.hi[d] = o.hi[d]
		}
	}
	return out
}

// without returns disjoint boxes that make up the list without o.
func without(list []box, o *box) []box {
	var out []box
	for i := range list {
		out = list[i].minus(o, out)
	}
	return out
}

// sweepDim returns the dimension along which the boxes differ most: the best one to sort them by.
func sweepDim(boxes []box) int {
	best, most := 0, 0
	for d := range boxes[0].n {
		at := make([]int64, len(boxes))
		for i := range boxes {
			at[i] = boxes[i].lo[d]
		}
		slices.Sort(at)
		if n := len(slices.Compact(at)); n > most {
			best, most = d, n
		}
	}
	return best
}

// FlatBoxes returns the boxes of a row-major tensor that make up the flat range [lo, hi) of its elements, as
// few as the range allows, in flat order: lo0,hi0,lo1,hi1,… each. A flattened parameter is published with it.
// What of the range lies outside the tensor is left out.
func FlatBoxes(shape []int64, lo, hi int64) [][]int64 {
	if lo, hi = max(lo, 0), min(hi, nelems(shape)); lo >= hi {
		return nil
	}
	if len(shape) == 0 {
		return [][]int64{{}}
	}
	inner := nelems(shape[1:])
	var out [][]int64
	rows := func(from, to, l, h int64) {
		for _, b := range FlatBoxes(shape[1:], l, h) {
			out = append(out, append([]int64{from, to}, b...))
		}
	}
	first, last := lo/inner, hi/inner // rows that the range begins and ends in
	if first == last {
		rows(first, first+1, lo-first*inner, hi-first*inner)
		return out
	}
	if lo > first*inner {
		rows(first, first+1, lo-first*inner, inner)
		first++
	}
	if first < last {
		rows(first, last, 0, inner)
	}
	if hi > last*inner {
		rows(last, last+1, 0, hi-last*inner)
	}
	return out
}
