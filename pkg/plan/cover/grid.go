package cover

import (
	"math/bits"
	"slices"
)

// grid gives bytes of one space coordinates: the digits of the offset in a mixed radix.
//
// With coordinates a region whose strides are pitches is a box, however many runs it has, and 2^n corners say all of
// it. The lists of corners of two sets of boxes are equal, after cancelling, exactly when their indicator
// functions are: a function on a grid is the sum of its corners' prefix sums, and nothing else has the same sum.
type grid struct {
	pitch []int64  // bytes, descending, each a multiple of the next; the last is 1
	radix []int64  // largest digit + 1 of each pitch
	unit  []uint64 // corner number per digit
	base  uint64   // first corner number of the space

	regions, runs int64 // that the space has, and that those are if spelled out
}

// dim is one dimension of a region: n indices, stride bytes apart.
type dim struct{ n, stride int64 }

// corners is where a grid writes the corners of boxes, by sign. Beyond room of either it writes no more than
// those of the box at hand: somebody gives up.
type corners struct {
	plus, minus *[]uint64
	room        int
}

// full reports whether there are more corners than room.
func (c *corners) full() bool { return len(*c.plus) > c.room || len(*c.minus) > c.room }

// strides notes the strides of a region as candidates for pitches.
func (g *grid) strides(r *Region) {
	runs := int64(1)
	for d := range r.NDim {
		if runs < maxRuns {
			runs *= r.N[d]
		}
		if s := r.Stride[d]; r.N[d] > 1 && !slices.Contains(g.pitch, s) && len(g.pitch) < 64 {
			g.pitch = append(g.pitch, s)
		}
	}
	g.regions++
	g.runs += runs
}

// fix keeps the pitches that divide each other and lays out the corner numbers. It returns the first
// number beyond them. A grid whose boxes have more corners than their runs have ends is given up: its space
// is checked run by run.
func (g *grid) fix(nbytes int64, base uint64) uint64 {
	slices.Sort(g.pitch)
	chain := []int64{1}
	for _, p := range g.pitch { // from below: the fine pitches are the ones that spare most cutting
		// A stride that the chain lacks costs one box for each index along it; one that it has costs nothing.
		if last := chain[len(chain)-1]; p > last && p%last == 0 {
			chain = append(chain, p)
		}
	}
	slices.Reverse(chain)
	n := len(chain)
	if n > 20 || g.regions<<n >= 2*g.runs {
		g.pitch = nil
		return base
	}
	g.pitch, g.radix, g.unit, g.base = chain, make([]int64, n), make([]uint64, n), base
	unit := uint64(1)
	for i := n - 1; i >= 0; i-- {
		g.radix[i] = nbytes/chain[i] + 1
		if i > 0 {
			g.radix[i] = chain[i-1] / chain[i]
		}
		g.unit[i] = unit
		over, product := bits.Mul64(unit, uint64(g.radix[i]+1))
		if over != 0 || base+product < base {
			g.pitch = nil // no 64 bits number them
			return base
		}
		unit = product
	}
	return base + unit
}

// dims appends the region's dimensions, and its run as one of stride 1.
func (r *Region) dims(out []dim) []dim {
	for d := range r.NDim {
		if r.N[d] > 1 {
			out = append(out, dim{r.N[d], r.Stride[d]})
		}
	}
	if r.Run > 1 {
		out = append(out, dim{r.Run, 1})
	}
	return out
}

// add writes the corners of base + all combinations of dims. Dimensions that don't fit the grid are cut.
func (g *grid) add(base int64, dims []dim, out *corners) {
	var width [MaxDims + 2]int64
	for i := range g.pitch {
		width[i] = 1
	}
	for k, d := range dims {
		i := slices.Index(g.pitch, d.stride)
		if i < 0 || width[i] != 1 {
			g.spell(base, dims, k, out)
			return
		}
		digit := base / g.pitch[i] % g.radix[i]
		if i == 0 {
			digit = base / g.pitch[0]
		}
		if digit+d.n > g.radix[i] {
			g.carry(base, dims, k, i, digit, out)
			return
		}
		width[i] = d.n
	}
	g.corners(base, &width, out)
}

// spell adds each index of dimension k by itself.
func (g *grid) spell(base int64, dims []dim, k int, out *corners) {
	rest := slices.Concat(dims[:k], dims[k+1:])
	for i := int64(0); i < dims[k].n && !out.full(); i++ {
		g.add(base+i*dims[k].stride, rest, out)
	}
}

// carry cuts dimension k, which overflows the digits of pitch i > 0: a head up to the overflow, whole
// turns as indices of the pitch above, and a tail. A box must lie inside the digits, or its corners would be numbers
// of other bytes.
func (g *grid) carry(base int64, dims []dim, k, i int, digit int64, out *corners) {
	n, stride, radix := dims[k].n, dims[k].stride, g.radix[i]
	part := func(base, n int64, more ...dim) {
		if n == 0 {
			return
		}
		d := slices.Concat(dims, more)
		d[k].n = n
		g.add(base, d, out)
	}
	head := (radix - digit) % radix
	part(base, min(head, n))
	if n <= head {
		return
	}
	base += head * stride
	n -= head
	if turns := n / radix; turns > 0 {
		if turns == 1 {
			part(base, radix)
		} else {
			part(base, radix, dim{turns, g.pitch[i-1]})
		}
		base += turns * radix * stride
		n %= radix
	}
	part(base, n)
}

// corners writes the 2^n corners of a box: its low one at base, each other further by a width, and the sign
// of each by how many of its coordinates are high ones.
func (g *grid) corners(base int64, width *[MaxDims + 2]int64, out *corners) {
	n := len(g.pitch)
	at := g.base
	for i := range n {
		digit := base / g.pitch[i]
		if i > 0 {
			digit %= g.radix[i]
		}
		at += uint64(digit) * g.unit[i]
	}
	for mask := range 1 << n {
		corner, odd := at, false
		for i := range n {
			if mask>>i&1 == 1 {
				corner += uint64(width[i]) * g.unit[i]
				odd = !odd
			}
		}
		if odd {
			*out.minus = append(*out.minus, corner)
		} else {
			*out.plus = append(*out.plus, corner)
		}
	}
}

// sortCorners sorts by 11 bits at a time: corners are many, and most of their bits are zero.
func sortCorners(list *[]uint64) {
	a := *list
	if len(a) < 1024 {
		slices.Sort(a)
		return
	}
	differ := uint64(0)
	sorted := true
	for i := 1; i < len(a); i++ {
		differ |= a[i] ^ a[0]
		sorted = sorted && a[i-1] <= a[i]
	}
	if sorted {
		return
	}
	b := make([]uint64, len(a))
	const width, mask = 11, 1<<11 - 1
	for shift := bits.TrailingZeros64(differ); differ>>shift != 0; shift += width {
		if differ>>shift&mask == 0 {
			continue
		}
		var next [mask + 1]int
		for _, v := range a {
			next[v>>shift&mask]++
		}
		at := 0
		for i, n := range &next {
			next[i] = at
			at += n
		}
		for _, v := range a {
			i := v >> shift & mask
			b[next[i]] = v
			next[i]++
		}
		a, b = b, a
	}
	*list = a
}
