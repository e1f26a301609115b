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

import (
	"math"
	"slices"
)

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

// each yields where the region's runs begin, the last dimension fastest.
func (r *Region) each(yield func(off int64) bool) {
	var at [MaxDims]int64
	off := r.Off
	for {
		if !yield(off) {
			return
		}
		k := r.NDim - 1
		for ; k >= 0; k-- {
			off += r.Stride[k]
			if at[k]++; at[k] < r.N[k] {
				break
			}
			off -= at[k] * r.Stride[k]
			at[k] = 0
		}
		if k < 0 {
			return
		}
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

// Verdict says how two sets of regions compare. When some region strays or some space is beyond proof, nothing
// else was judged.
type Verdict struct {
	Wrong  []int // spaces, ascending, in which some byte is not written exactly as often as wanted
	Stray  int   // id of the first region that leaves its space or lies in none; -1: none does
	Beyond int   // a space whose regions interleave by strides that don't divide each other, in too many runs; -1: none
}

// Equal compares what got writes with what want says. Spaces must be sorted and disjoint. about says how many
// regions to expect.
func Equal(spaces []Space, want, got Regions, about int) Verdict {
	c := newChecker(spaces)
	c.plus, c.minus = make([]uint64, 0, about), make([]uint64, 0, about)
	if stray := c.collect(got, false); stray >= 0 {
		return Verdict{Stray: stray, Beyond: -1}
	}
	n := len(c.plus)
	if stray := c.collect(want, true); stray >= 0 {
		return Verdict{Stray: stray, Beyond: -1}
	}
	if len(c.strided) > 0 {
		if i := c.refine(); i >= 0 {
			return Verdict{Stray: -1, Beyond: i}
		}
	} else {
		c.plus, c.minus = cancel(c.plus, c.minus, n)
	}
	return Verdict{Wrong: c.compare(), Stray: -1, Beyond: -1}
}

// checker holds the corners of all regions. Those of spaces where all regions are single runs are offsets
// in the arena; a space with strided regions has a grid, and corner numbers of its own beyond.
type checker struct {
	spaces      []Space
	grids       []grid // of spaces with strided regions; the others have no pitch
	plus, minus []uint64
	pending     Region  // a strided region that the next one may go on; none if NDim is 0
	pendingAt   int     // its space
	strided     []int64 // records: space and flip, offset, run, number of dimensions, (n, stride) of each
	from        int     // place in plus and minus where the regions being collected begin
	last        [2]int  // the spaces of the regions before
}

// keep notes a region with strides, or of a space with strides. flip says that it is wanted, not got.
func (c *checker) keep(space int, flip bool, r *Region) {
	head := int64(space) << 1
	if flip {
		head |= 1
	}
	c.strided = append(c.strided, head, r.Off, r.Run, int64(r.NDim))
	for d := range r.NDim {
		c.strided = append(c.strided, r.N[d], r.Stride[d])
	}
}

// each yields the regions that were kept; r is reused.
func (c *checker) each(yield func(space int, flip bool, r *Region)) {
	var r Region
	for at := 0; at < len(c.strided); {
		s := c.strided[at:]
		r.Off, r.Run, r.NDim = s[1], s[2], int(s[3])
		for d := range r.NDim {
			r.N[d], r.Stride[d] = s[4+2*d], s[5+2*d]
		}
		at += 4 + 2*r.NDim
		yield(int(s[0]>>1), s[0]&1 == 1, &r)
	}
}

// newChecker prepares for spaces that are sorted and disjoint.
func newChecker(spaces []Space) *checker { return &checker{spaces: spaces} }

// space finds the space that a region's first byte lies in; -1 if none. Regions come in some order, and
// mostly lie in one of the two spaces before.
func (c *checker) space(off int64) int {
	s := c.spaces
	if i := c.last[0]; i < len(s) && s[i].Lo <= off && off < s[i].Hi {
		return i
	}
	if i := c.last[1]; i < len(s) && s[i].Lo <= off && off < s[i].Hi {
		c.last[0], c.last[1] = i, c.last[0]
		return i
	}
	lo, hi := 0, len(s)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s[mid].Hi <= off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(s) || off < s[lo].Lo {
		return -1
	}
	c.last[0], c.last[1] = lo, c.last[0]
	return lo
}

// collect notes the ends of runs as corners, keeps strided regions for later, and stops at a region that
// leaves its space.
func (c *checker) collect(regions Regions, flip bool) (stray int) {
	stray, c.from = -1, len(c.plus)
	regions(func(id int, r *Region) bool {
		r.settle()
		end := r.Off + r.Run
		for d := range r.NDim {
			end += (r.N[d] - 1) * r.Stride[d]
		}
		i := c.space(r.Off)
		switch {
		case i < 0 || end > c.spaces[i].Hi:
			stray = id
			return false
		case r.NDim > 0:
			c.strides(i, flip, r)
		default:
			c.run(i, flip, r.Off, end)
		}
		return true
	})
	c.flush(flip)
	return stray
}

// run notes the ends of a single run. One that goes on where the last one of its space ended makes that longer: most
// parameters are written front to back, and a list that cancels itself need not be sorted. Runs are not joined
// across the border of a space, so that a run too long in one is not taken for a run in the next.
func (c *checker) run(space int, flip bool, lo, hi int64) {
	ends, begins := &c.minus, &c.plus
	if flip {
		ends, begins = begins, ends
	}
	if n := len(*ends) - 1; n >= c.from && lo > c.spaces[space].Lo && (*ends)[n] == uint64(lo) {
		(*ends)[n] = uint64(hi)
		return
	}
	*begins, *ends = append(*begins, uint64(lo)), append(*ends, uint64(hi))
}

// runs notes the ends of each run of a region, until there is no room.
func (c *checker) runs(space int, flip bool, r *Region, out *corners) {
	r.each(func(off int64) bool {
		c.run(space, flip, off, off+r.Run)
		return !out.full()
	})
}

// strides notes a strided region. Columns that follow each other, as blocks of columns of one tensor do,
// are taken as one region, which often is a single run.
func (c *checker) strides(space int, flip bool, r *Region) {
	p := &c.pending
	if p.NDim == r.NDim && space == c.pendingAt && p.Off+p.Run == r.Off && slices.Equal(p.N[:p.NDim], r.N[:r.NDim]) && slices.Equal(p.Stride[:p.NDim], r.Stride[:r.NDim]) {
		p.Run += r.Run
		return
	}
	c.flush(flip)
	p.Off, p.Run, p.NDim = r.Off, r.Run, r.NDim
	copy(p.N[:], r.N[:r.NDim])
	copy(p.Stride[:], r.Stride[:r.NDim])
	c.pendingAt = space
}

// flush files the pending region: as a run, if its columns have become whole rows.
func (c *checker) flush(flip bool) {
	p := &c.pending
	if p.NDim == 0 {
		return
	}
	p.settle()
	if p.NDim == 0 {
		c.run(c.pendingAt, flip, p.Off, p.Off+p.Run)
	} else {
		c.keep(c.pendingAt, flip, p)
	}
	p.NDim = 0
}

// How many corners regions may be spelled out in: some millions, and as many for each region as a few cuts make.
// Regions that fit their grid have a handful each.
const (
	maxCorners          = 1 << 21
	maxCornersPerRegion = 1 << 8
)

// refine gives the spaces with strided regions their grids, and moves their single runs over to them. It
// returns the space at which there would be too many corners; -1 if nowhere.
func (c *checker) refine() (beyond int) {
	c.grids = make([]grid, len(c.spaces))
	c.each(func(space int, _ bool, r *Region) { c.grids[space].strides(r) })
	base := uint64(c.spaces[len(c.spaces)-1].Hi) + 1
	for i := range c.grids {
		if len(c.grids[i].pitch) > 0 {
			base = c.grids[i].fix(c.spaces[i].Hi-c.spaces[i].Lo, base)
		}
	}
	plain := 0
	for i := range c.plus { // a wanted run has its end in plus, a got one its beginning
		lo, hi := min(c.plus[i], c.minus[i]), max(c.plus[i], c.minus[i])
		if s := c.space(int64(lo)); len(c.grids[s].pitch) > 0 {
			c.keep(s, c.plus[i] > c.minus[i], &Region{Off: int64(lo), Run: int64(hi - lo)})
			continue
		}
		c.plus[plain], c.minus[plain] = c.plus[i], c.minus[i]
		plain++
	}
	c.plus, c.minus = c.plus[:plain], c.minus[:plain]
	c.from = math.MaxInt // from here on wanted and got runs alternate
	var dims [MaxDims + 1]dim
	out := corners{room: maxCorners + max(len(c.plus), len(c.minus))}
	beyond = -1
	c.each(func(space int, flip bool, r *Region) {
		if beyond >= 0 {
			return
		}
		out.plus, out.minus = &c.plus, &c.minus
		out.room += maxCornersPerRegion
		if len(c.grids[space].pitch) == 0 {
			c.runs(space, flip, r, &out)
		} else {
			if flip {
				out.plus, out.minus = out.minus, out.plus
			}
			c.grids[space].add(r.Off-c.spaces[space].Lo, r.dims(dims[:0]), &out)
		}
		if out.full() {
			beyond = space
		}
	})
	return beyond
}

// compare cancels equal corners and names the spaces of those that stay.
func (c *checker) compare() []int {
	if pairOff(c.plus, c.minus) || pairOffInBuckets(c.plus, c.minus) {
		return nil
	}
	sortCorners(&c.plus)
	sortCorners(&c.minus)
	if slices.Equal(c.plus, c.minus) {
		return nil
	}
	seen := make([]bool, len(c.spaces))
	depth, from := 0, uint64(0) // how much too often bytes from here on are written
	c.unequal(func(corner uint64, sign int) {
		if corner > uint64(c.spaces[len(c.spaces)-1].Hi) {
			seen[c.gridOf(corner)] = true
			return
		}
		if depth != 0 {
			c.blame(from, corner, seen)
		}
		depth, from = depth+sign, corner
	})
	var wrong []int
	for i, bad := range seen {
		if bad {
			wrong = append(wrong, i)
		}
	}
	return wrong
}

// unequal yields, ascending, the corners that only one of the sorted lists has.
func (c *checker) unequal(yield func(corner uint64, sign int)) {
	i, k := 0, 0
	for i < len(c.plus) || k < len(c.minus) {
		switch {
		case k == len(c.minus) || i < len(c.plus) && c.plus[i] < c.minus[k]:
			yield(c.plus[i], 1)
			i++
		case i == len(c.plus) || c.minus[k] < c.plus[i]:
			yield(c.minus[k], -1)
			k++
		default:
			i++
			k++
		}
	}
}

// blame marks the spaces that the bytes [lo, hi) lie in: they are written too often, or not often enough.
func (c *checker) blame(lo, hi uint64, seen []bool) {
	for i, s := range c.spaces {
		if uint64(s.Lo) < hi && lo < uint64(s.Hi) {
			seen[i] = true
		}
	}
}

// gridOf returns the space whose grid a corner number belongs to.
func (c *checker) gridOf(corner uint64) int {
	for i := len(c.grids) - 1; i > 0; i-- {
		if g := &c.grids[i]; len(g.pitch) > 0 && g.base <= corner {
			return i
		}
	}
	return 0
}
