package tiles

import "fmt"

// Options bound the size of tiles. Zero values are the defaults.
type Options struct {
	MinBytes int64 // a tile is not cut finer than this; default a 256th of the source, but 1 to 16 KiB
	MaxBytes int64 // a tile is cut in rows until it is no larger than this; default 64 KiB, so that a row of tiles stays in the cache; at most MaxTile
	Rows     bool  // readers slice rows only: tiles are whole rows, one run of bytes each, and take less than half the time
}

// Bounds of a tile in bytes. Whoever reads a part of a tile reads the whole of it to verify the part: that must fit a
// buffer. Smaller tiles than the least would be more digest than bytes.
const (
	MaxTile = 4 << 20
	MinTile = 16
)

// Check refuses a grid of another process whose tiles are out of bounds. A source smaller than the least tile is one.
func Check(shape, grid []int64, elsize int64) error {
	cell := make([]int64, len(grid))
	for d, g := range grid {
		if g < 1 {
			return fmt.Errorf("tiles of %d elements in dimension %d", g, d)
		}
		cell[d] = min(g, shape[d])
	}
	if n := bytes(cell, elsize); n > MaxTile || n < min(MinTile, bytes(shape, elsize)) {
		return fmt.Errorf("tiles of %v elements, %d bytes: expected %d to %d", grid, n, MinTile, MaxTile)
	}
	return nil
}

const (
	leastMin   = 1 << 10
	mostMin    = 16 << 10
	defaultMax = 64 << 10
	// parts is into how many equal slices a dimension is cut where it divides: readers take slices of 1/2 to 1/16.
	parts = 16
)

// ChooseGrid gives the extent of a tile in each dimension, in elements of elsize bytes. Slices by 2, 4, 8 and 16 of a
// dimension that divides by 16 are unions of whole tiles, as far as MinBytes and the length of a tile's rows allow.
func ChooseGrid(shape []int64, elsize int64, o Options) []int64 {
	if o.MinBytes == 0 {
		o.MinBytes = min(max(bytes(shape, elsize)/(parts*parts), leastMin), mostMin)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMax
	}
	o.MaxBytes = min(o.MaxBytes, MaxTile)
	if n := len(shape) - 1; o.Rows && n > 0 && bytes(shape[n:], elsize) <= o.MaxBytes {
		o.Rows = false
		return append(ChooseGrid(shape[:n], bytes(shape[n:], elsize), o), max(1, shape[n]))
	}
	grid := make([]int64, len(shape))
	for d, n := range shape {
		grid[d] = cut(n)
	}
	widen(grid, shape, elsize, min(minRow, o.MinBytes))
	for bytes(grid, elsize) < o.MinBytes && coarsen(grid, shape) {
	}
	for d := range shape {
		refine(grid, d, elsize, o.MaxBytes)
	}
	return grid
}

// cut is the finest extent for a dimension of n elements: a sixteenth, or where that is not whole, steps of a power of
// two, which slices of padded dimensions begin at.
func cut(n int64) int64 {
	switch {
	case n <= 1:
		return 1
	case n%parts == 0:
		return n / parts
	case n >= 4*parts:
		return parts
	case n%2 == 0:
		return n / 2
	default:
		return n
	}
}

// minRow is how long a tile's rows are at least, in bytes: shorter ones cost twice as much to digest. But rows stay cut in
// minCuts.
const (
	minRow  = 128
	minCuts = 4
)

// widen doubles the extent in the last dimension until a tile's rows are long enough.
func widen(grid, shape []int64, elsize, least int64) {
	if n := len(grid) - 1; n > 0 {
		for grid[n]*elsize < least && 2*minCuts*grid[n] <= shape[n] {
			grid[n] *= 2
		}
	}
}

// coarsen doubles the extent in the dimension that is cut into most tiles, of equals the last. It says whether any was
// left to be doubled. So every dimension stays cut as long as possible: a reader may slice any of them.
func coarsen(grid, shape []int64) bool {
	most, at := int64(1), -1
	for d, g := range grid {
		if n := (shape[d] + g - 1) / g; n > 1 && n >= most {
			most, at = n, d
		}
	}
	if at < 0 {
		return false
	}
	grid[at] = min(2*grid[at], shape[at])
	return true
}

// refine divides the extent in dimension d until a tile has no more than most bytes: into whole parts where any are not
// too thin, so that what was aligned with slices stays so.
func refine(grid []int64, d int, elsize, most int64) {
	for bytes(grid, elsize) > most && grid[d] > 1 {
		target := max(1, grid[d]*most/bytes(grid, elsize))
		part := target
		for part > 1 && grid[d]%part != 0 {
			part--
		}
		if 8*part < target {
			part = target
		}
		grid[d] = part
	}
}

// bytes is the size of a full tile, saturating: a shape is checked against its bytes elsewhere.
func bytes(grid []int64, elsize int64) int64 {
	n := elsize
	for _, g := range grid {
		if g > 0 && n > (1<<62)/g {
			return 1 << 62
		}
		n *= max(1, g)
	}
	return n
}

// cells is the interval [first, last) of cells that a box touches in one dimension.
func cells(lo, hi, g int64) (first, last int64) {
	if hi <= lo {
		return 0, 0
	}
	return lo / g, (hi-1)/g + 1
}

// Count is the number of tiles of a box (lo0,hi0,lo1,hi1,… in elements); 0 when it is empty, 1 for a 0-d box. Beyond
// countLimit it is countLimit: boxes of strided shards may be larger than any memory, and nobody has so many digests.
func Count(grid, box []int64) int {
	n := int64(1)
	for d, g := range grid {
		first, last := cells(box[2*d], box[2*d+1], g)
		if last == first {
			return 0
		}
		n = min(n, countLimit/(last-first)+1) * (last - first)
	}
	return int(min(n, countLimit))
}

// countLimit is small enough for the counts of all shards of a layout to be summed.
const countLimit = 1 << 40

// Within calls f for each tile of box that lies wholly in [lo, hi), in row-major order, with the tile's index among all
// tiles of the box and its bounds, which are reused between calls. It stops at f's first error.
func Within(grid, box, lo, hi []int64, f func(index int, lo, hi []int64) error) error {
	w := walk{grid: grid, box: box, n: len(grid)}
	for d, g := range grid {
		first, last := cells(box[2*d], box[2*d+1], g)
		a, b := first, last
		for a < b && max(box[2*d], a*g) < lo[d] {
			a++
		}
		for b > a && min(box[2*d+1], b*g) > hi[d] {
			b--
		}
		if a == b {
			return nil
		}
		w.zero[d], w.first[d], w.last[d], w.width[d] = first, a, b, last-first
	}
	return w.run(f)
}

// Edges calls f for each tile of box that [lo, hi) touches without holding it whole, as Within does for the others.
func Edges(grid, box, lo, hi []int64, f func(index int, lo, hi []int64) error) error {
	w := walk{grid: grid, box: box, n: len(grid)}
	cut := false
	for d, g := range grid {
		first, last := cells(box[2*d], box[2*d+1], g)
		a, b := cells(max(lo[d], box[2*d]), min(hi[d], box[2*d+1]), g)
		if a == b {
			return nil
		}
		w.zero[d], w.first[d], w.last[d], w.width[d] = first, a, b, last-first
		cut = cut || max(box[2*d], a*g) < lo[d] || min(box[2*d+1], b*g) > hi[d]
	}
	if !cut {
		return nil
	}
	return w.run(func(index int, tlo, thi []int64) error {
		for d := range tlo {
			if tlo[d] < lo[d] || thi[d] > hi[d] {
				return f(index, tlo, thi)
			}
		}
		return nil
	})
}

// maxDims is the largest number of dimensions that a source has.
const maxDims = 8

// walk enumerates a box of cells.
type walk struct {
	grid, box                []int64
	n                        int
	zero, first, last, width [maxDims]int64
	lo, hi                   [maxDims]int64
}

func (w *walk) run(f func(int, []int64, []int64) error) error {
	at := w.first
	for {
		index := int64(0)
		for d := range w.n {
			index = index*w.width[d] + at[d] - w.zero[d]
			w.lo[d] = max(w.box[2*d], at[d]*w.grid[d])
			w.hi[d] = min(w.box[2*d+1], (at[d]+1)*w.grid[d])
		}
		if err := f(int(index), w.lo[:w.n], w.hi[:w.n]); err != nil {
			return err
		}
		d := w.n - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < w.last[d] {
				break
			}
			at[d] = w.first[d]
		}
		if d < 0 {
			return nil
		}
	}
}
