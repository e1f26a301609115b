// Package cover proves that a set of strided writes covers a set of byte ranges exactly once.
//
// It knows nothing of tensors, copies or plans: it sees where bytes land, and judges. It shares no code
// with the planner whose work it checks.
//
// # How
//
// The indicator function of a box is known by its corners: +1 and -1, alternating. If the corners of all
// writes cancel against the corners of what should be written, each byte is written as often as it should
// be, and the other way round. So a proof is two sorted lists of corners that are equal, in
// O(n log n) of the writes, however many runs each of them stands for.
//
// Boxes need coordinates. Each space (a parameter) gets a grid of pitches, each a multiple of the next,
// made of the strides that its writes have; writes that don't fit the grid are cut until they do.
package cover

import "slices"

// MaxDims is the largest number of dimensions of a region.
const MaxDims = 24

// Region is a set of bytes: runs repeated along dimensions.
type Region struct {
	Off    int64 // of the first byte
	Run    int64 // bytes
	NDim   int
	N      [MaxDims]int64
	Stride [MaxDims]int64 // bytes
}

// Space is a range of bytes that must be written; a parameter in an arena.
type Space struct{ Lo, Hi int64 }

// settle joins dimensions that touch into the run: what is left of most regions is one run.
func (r *Region) settle() {
	for d := 0; d < r.NDim; {
		if r.N[d] != 1 && r.Stride[d] != r.Run {
			d++
			continue
		}
		r.Run *= r.N[d]
		r.NDim--
		r.N[d], r.Stride[d] = r.N[r.NDim], r.Stride[r.NDim]
		d = 0
	}
}

// Regions yields regions until yield returns false. It is called more than once and must yield the same;
// a region may be changed once it is yielded. id comes back in faults.
type Regions func(yield func(id int, r *Region) bool)

// Whole yields each space as one region, with its index as id.
func Whole(spaces []Space) Regions {
	return func(yield func(int, *Region) bool) {
		for i, s := range spaces {
			if s.Hi > s.Lo && !yield(i, &Region{Off: s.Lo, Run: s.Hi - s.Lo}) {
				return
			}
		}
	}
}

// Within yields those regions that begin in one of the spaces, which must be sorted.
func Within(spaces []Space, regions Regions) Regions {
	return func(yield func(int, *Region) bool) {
		c := newChecker(spaces)
		regions(func(id int, r *Region) bool {
			return c.space(r.Off) < 0 || yield(id, r)
		})
	}
}

// Equal reports the spaces, ascending, in which got does not write each byte exactly as often as want, and
// the id of the first region that lies in no space; -1 if all do. Spaces must be sorted and disjoint.
func Equal(spaces []Space, want, got Regions) (wrong []int, stray int) {
	c := newChecker(spaces)
	if stray = c.survey(got); stray >= 0 {
		return nil, stray
	}
	if stray = c.survey(want); stray >= 0 {
		return nil, stray
	}
	c.layOut()
	c.collect(got, false)
	c.collect(want, true)
	return c.compare(), -1
}

// checker holds the corners of all regions, each space's in a range of numbers of its own.
type checker struct {
	spaces []Space
	grids  []grid
	plus   []uint64
	minus  []uint64
	last   int // the space of the region before
}

func newChecker(spaces []Space) *checker {
	return &checker{spaces: spaces, grids: make([]grid, len(spaces))}
}

// space finds the space that a region's first byte lies in; -1 if none.
func (c *checker) space(off int64) int {
	if s := c.spaces; c.last < len(s) && s[c.last].Lo <= off && off < s[c.last].Hi {
		return c.last
	}
	i, _ := slices.BinarySearchFunc(c.spaces, off, func(s Space, at int64) int {
		switch {
		case s.Hi <= at:
			return -1
		case s.Lo > at:
			return 1
		}
		return 0
	})
	if i == len(c.spaces) || off < c.spaces[i].Lo || off >= c.spaces[i].Hi {
		return -1
	}
	c.last = i
	return i
}

// survey gathers the strides of each space, and refuses regions that leave their space.
func (c *checker) survey(regions Regions) (stray int) {
	stray = -1
	regions(func(id int, r *Region) bool {
		r.settle()
		last := r.Off + r.Run - 1
		for d := range r.NDim {
			last += (r.N[d] - 1) * r.Stride[d]
		}
		i := c.space(r.Off)
		if i < 0 || last >= c.spaces[i].Hi {
			stray = id
			return false
		}
		if r.NDim > 0 {
			c.grids[i].strides(r)
		}
		return true
	})
	return stray
}

// layOut fixes the grids and gives each its range of corner numbers.
func (c *checker) layOut() {
	base := uint64(0)
	for i := range c.grids {
		base = c.grids[i].fix(c.spaces[i].Hi-c.spaces[i].Lo, base)
	}
}

func (c *checker) collect(regions Regions, flip bool) {
	regions(func(_ int, r *Region) bool {
		r.settle()
		i := c.space(r.Off)
		g := &c.grids[i]
		plus, minus := &c.plus, &c.minus
		if flip {
			plus, minus = minus, plus
		}
		off := r.Off - c.spaces[i].Lo
		if r.NDim == 0 && len(g.pitch) == 1 { // by far the most
			*plus = append(*plus, g.base+uint64(off))
			*minus = append(*minus, g.base+uint64(off+r.Run))
			return true
		}
		g.add(off, g.dims(r), plus, minus)
		return true
	})
}

// compare cancels equal corners and names the spaces of those that stay.
func (c *checker) compare() []int {
	sortCorners(&c.plus)
	sortCorners(&c.minus)
	if slices.Equal(c.plus, c.minus) {
		return nil
	}
	seen := make([]bool, len(c.grids))
	i, k := 0, 0
	for i < len(c.plus) || k < len(c.minus) {
		switch {
		case k == len(c.minus) || i < len(c.plus) && c.plus[i] < c.minus[k]:
			seen[c.owner(c.plus[i])] = true
			i++
		case i == len(c.plus) || c.minus[k] < c.plus[i]:
			seen[c.owner(c.minus[k])] = true
			k++
		default:
			i++
			k++
		}
	}
	var wrong []int
	for i, bad := range seen {
		if bad {
			wrong = append(wrong, i)
		}
	}
	return wrong
}

// owner returns the space whose range of corner numbers holds n.
func (c *checker) owner(n uint64) int {
	i, found := slices.BinarySearchFunc(c.grids, n, func(g grid, n uint64) int {
		switch {
		case g.base > n:
			return 1
		case g.base < n:
			return -1
		}
		return 0
	})
	if !found {
		i--
	}
	return i
}
