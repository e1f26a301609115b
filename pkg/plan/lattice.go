package plan

// lattice is a walk resolved to source coordinates: along each of its dimensions every coordinate moves by
// a fixed step, and none of them ever carries into the next.
//
// That is what makes boxes easy to deal with. The coordinate of dimension d is at[d] plus steps times indices,
// all of them non-negative, so its smallest and largest values are at the first and last index of everything
// (bounds), and the part of the lattice inside a box is found one dimension at a time (cut).
type lattice struct {
	walk
	at   [maxSourceDims]int64          // coordinates at index 0
	step [maxWalk][maxSourceDims]int64 // per walk dimension
	use  int32                         // the copy that it is a part of
}

// maxParts bounds how many lattices one view may fall into. Only a flattened dimension sliced with a step
// that doesn't divide it makes more than a few: at most as many as it has rows, columns, or the step has units.
const maxParts = 1 << 14

// resolver turns walks into lattices over one source shape.
type resolver struct {
	shape  []int64 // at least one dimension
	stride [maxSourceDims]int64
	out    []lattice
}

// newResolver prepares for one shape, none of whose sizes is 0.
func newResolver(shape []int64) *resolver {
	r := &resolver{shape: shape}
	s := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		r.stride[d] = s
		s *= shape[d]
	}
	return r
}

// resolve returns lattices that together are the walk; false when there would be too many.
//
// A walk moves along the row-major source by flat strides. In the mixed radix of the shape such a stride is one step
// for each coordinate, as long as adding it up never overflows a digit. So the digits are taken out from the
// outermost on (level), and wherever the inner ones may overflow, the walk is cut into parts in which they don't
// (carry). Views of rows, columns, heads and experts need no cut at all.
func (r *resolver) resolve(w *walk) ([]lattice, bool) {
	r.out = r.out[:0]
	l := lattice{walk: *w}
	ok := r.level(&l, w.src, w.srcStride, 0)
	return r.out, ok
}

// level takes dimension d's share out of what remains of the flat offset and strides, then goes on.
// Where the share would carry into dimension d-1, the walk is cut first.
//
// reach is the largest remainder that any index leaves below dimension d. While it is smaller than one unit of d,
// the quotients alone say the coordinate.
func (r *resolver) level(l *lattice, rest int64, strides [maxWalk]int64, d int) bool {
	s := r.stride[d]
	reach, widest, most := rest%s, -1, int64(0)
	for j := range l.n {
		c := (l.size[j] - 1) * (strides[j] % s)
		reach += c
		if c > most {
			widest, most = j, c
		}
	}
	if reach >= s {
		return r.carry(l, rest, strides, d, widest, reach-most)
	}
	l.at[d] = rest / s
	for j := range l.n {
		l.step[j][d] = strides[j] / s
		strides[j] %= s
	}
	if d+1 < len(r.shape) {
		return r.level(l, rest%s, strides, d+1)
	}
	if len(r.out) == maxParts {
		return false
	}
	r.out = append(r.out, *l)
	return true
}

// carry cuts dimension j where dimension d overflows. other is the reach of everything but j.
func (r *resolver) carry(l *lattice, rest int64, strides [maxWalk]int64, d, j int, other int64) bool {
	s, step, n := r.stride[d], strides[j]%r.stride[d], l.size[j]
	lead := rest % s
	// The simplest case, a row-major tensor viewed flat: s/step indices make exactly one turn of the digits below
	// d, and what the other dimensions add stays below one step, so that all of them overflow at the same index.
	if s%step == 0 && lead%step+(other-lead) < step && l.n < maxWalk {
		return r.periods(l, rest, strides, d, j, s/step, lead/step)
	}
	// The step doesn't divide the dimension. Overflows repeat after so many indices that the steps make whole
	// turns of it; turns become a dimension, and only one of them is cut piece by piece.
	if period := s / gcd(s, step); n >= 2*period && l.n < maxWalk {
		return r.turns(l, rest, strides, d, j, 0, period)
	}
	for from := int64(0); from < n; {
		lead := (rest + from*strides[j]) % s
		fits := max(1, (s-1-lead-(other-rest%s))/step+1)
		fits = min(fits, n-from)
		if !r.part(l, rest, strides, d, j, from, fits) {
			return false
		}
		from += fits
	}
	return true
}

// periods cuts dimension j, of which each period indices fill dimension d exactly: a head up to the first
// overflow, whole periods as a dimension of their own, and a tail.
func (r *resolver) periods(l *lattice, rest int64, strides [maxWalk]int64, d, j int, period, phase int64) bool {
	from := int64(0)
	if phase > 0 {
		from = min(l.size[j], period-phase)
		if !r.part(l, rest, strides, d, j, 0, from) {
			return false
		}
	}
	return r.turns(l, rest, strides, d, j, from, period)
}

// turns makes the whole periods after from a dimension of their own, and goes on with them and with the tail. After
// a period the digits below d are where they were, so every period looks like the first one, moved by a number of
// whole units of d: that is the new dimension's stride.
func (r *resolver) turns(l *lattice, rest int64, strides [maxWalk]int64, d, j int, from, period int64) bool {
	n := l.size[j]
	if whole := (n - from) / period; whole > 0 {
		c := *l
		c.advance(j, from)
		k := c.n
		c.n++
		c.size[j], c.size[k] = period, whole
		c.srcStride[k], c.dstStride[k] = c.srcStride[j]*period, c.dstStride[j]*period
		c.step[k] = [maxSourceDims]int64{}
		for e := range d {
			c.step[k][e] = c.step[j][e] * period
		}
		st := strides
		st[k] = strides[j] * period
		if !r.level(&c, rest+from*strides[j], st, d) {
			return false
		}
		from += whole * period
	}
	if from == n {
		return true
	}
	return r.part(l, rest, strides, d, j, from, n-from)
}

// part goes on with the indices [from, from+n) of dimension j.
func (r *resolver) part(l *lattice, rest int64, strides [maxWalk]int64, d, j int, from, n int64) bool {
	c := *l
	c.advance(j, from)
	c.size[j] = n
	return r.level(&c, rest+from*strides[j], strides, d)
}

// advance moves the origin of the lattice i indices along dimension j.
func (l *lattice) advance(j int, i int64) {
	l.src += i * l.srcStride[j]
	l.dst += i * l.dstStride[j]
	for d := range l.at {
		l.at[d] += i * l.step[j][d]
	}
}

// bounds returns the smallest and largest coordinate of dimension d.
func (l *lattice) bounds(d int) (lo, last int64) {
	lo, last = l.at[d], l.at[d]
	for j := range l.n {
		last += (l.size[j] - 1) * l.step[j][d]
	}
	return lo, last
}

// cut appends the parts of the lattice that lie in the box to out.
func (l *lattice) cut(b *box, out []lattice) []lattice {
	return l.cutFrom(b, 0, out)
}

// cutFrom looks at dimensions d and up; those before already fit. Most lattices fit or miss the box whole.
func (l *lattice) cutFrom(b *box, d int, out []lattice) []lattice {
	for ; d < b.n; d++ {
		lo, last := l.bounds(d)
		if last < b.lo[d] || lo >= b.hi[d] {
			return out
		}
		if lo < b.lo[d] || last >= b.hi[d] {
			return l.cutAlong(b, d, out)
		}
	}
	return append(out, *l)
}

// cutAlong cuts along the dimension that moves coordinate d the most: indices whose inner dimensions lie
// wholly inside stay together, those that lie partly inside go on alone. With nested steps at most one index at
// either end lies partly inside, so a box cuts a lattice into a handful of parts.
func (l *lattice) cutAlong(b *box, d int, out []lattice) []lattice {
	j, reach := 0, int64(0)
	for k := range l.n {
		if l.size[k] > 1 && (l.size[j] == 1 || l.step[k][d] > l.step[j][d]) {
			j = k
		}
	}
	for k := range l.n {
		if k != j {
			reach += (l.size[k] - 1) * l.step[k][d]
		}
	}
	q, at, n := l.step[j][d], l.at[d], l.size[j]
	first := max(0, ceilDiv(b.lo[d]-reach-at, q)) // touches the box
	last := min(n-1, floorDiv(b.hi[d]-1-at, q))   //
	whole := max(0, ceilDiv(b.lo[d]-at, q))       // lies wholly inside
	wholeLast := min(n-1, floorDiv(b.hi[d]-1-reach-at, q))
	if whole > wholeLast {
		whole, wholeLast = last+1, last
	}
	for i := first; i < whole; i++ {
		out = l.index(b, d, j, i, 1, out)
	}
	if whole <= wholeLast {
		out = l.index(b, d, j, whole, wholeLast-whole+1, out)
	}
	for i := max(wholeLast+1, whole); i <= last; i++ {
		out = l.index(b, d, j, i, 1, out)
	}
	return out
}

// index goes on with the indices [i, i+n) of dimension j.
func (l *lattice) index(b *box, d, j int, i, n int64, out []lattice) []lattice {
	c := *l
	c.advance(j, i)
	c.size[j] = n
	return c.cutFrom(b, d, out)
}

// hull returns the smallest box that holds the lattice.
func (l *lattice) hull(ndim int) box {
	b := box{n: ndim}
	for d := range ndim {
		lo, last := l.bounds(d)
		b.lo[d], b.hi[d] = lo, last+1
	}
	return b
}
