package tiles

import (
	"fmt"
	"iter"
	"math/bits"
)

// MaxTiles bounds the tiles of one shard.
const MaxTiles = 1 << 24

// Tiling is the tiles of one box.
type Tiling struct {
	grid  []int64 // extent of a cell, elements
	box   []int64
	first []int64 // first cell touched, by dimension
	cells []int64 // cells touched, by dimension
	n     int64
}

// New cuts a box by a grid.
func New(grid, box []int64) (*Tiling, error) {
	if len(box) != 2*len(grid) {
		return nil, fmt.Errorf("tile a box: %d bounds for a grid of %d dimensions", len(box), len(grid))
	}
	t := &Tiling{grid: grid, box: box, n: 1}
	t.first, t.cells = make([]int64, len(grid)), make([]int64, len(grid))
	for d, g := range grid {
		lo, hi := box[2*d], box[2*d+1]
		if g < 1 || lo < 0 || hi < lo {
			return nil, fmt.Errorf("tile a box: dimension %d is [%d, %d) with cells of %d", d, lo, hi, g)
		}
		t.first[d] = lo / g
		if hi > lo {
			t.cells[d] = (hi-1)/g - lo/g + 1
		}
		over, n := bits.Mul64(uint64(t.n), uint64(t.cells[d]))
		if over != 0 || n > MaxTiles {
			return nil, fmt.Errorf("tile a box: more than %d tiles in %v by %v", MaxTiles, box, grid)
		}
		t.n = int64(n)
	}
	return t, nil
}

// Len is the number of tiles.
func (t *Tiling) Len() int { return int(t.n) }

// Box writes the box of tile i to out, which has twice as many values as there are dimensions.
func (t *Tiling) Box(i int, out []int64) {
	rest := int64(i)
	for d := len(t.grid) - 1; d >= 0; d-- {
		c := t.first[d] + rest%t.cells[d]
		rest /= t.cells[d]
		out[2*d] = max(t.box[2*d], c*t.grid[d])
		out[2*d+1] = min(t.box[2*d+1], (c+1)*t.grid[d])
	}
}

// span is the tiles along dimension d, counted from the first, that lie wholly in [lo, hi).
func (t *Tiling) span(d int, lo, hi int64) (from, to int64) {
	g, first := t.grid[d], t.first[d]
	blo, bhi := t.box[2*d], t.box[2*d+1]
	if from = (lo+g-1)/g - first; lo <= blo {
		from = 0 // the first tile begins at the box, not at the cell
	}
	if to = hi/g - first; hi >= bhi {
		to = t.cells[d]
	}
	return max(0, from), min(to, t.cells[d])
}

// Within yields index and box of each tile that lies wholly in [lo, hi). The box is reused between yields.
func (t *Tiling) Within(lo, hi []int64) iter.Seq2[int, []int64] {
	return func(yield func(int, []int64) bool) {
		n := len(t.grid)
		from, to, at := make([]int64, n), make([]int64, n), make([]int64, n)
		for d := range n {
			from[d], to[d] = t.span(d, lo[d], hi[d])
			if from[d] >= to[d] {
				return
			}
			at[d] = from[d]
		}
		if t.n == 0 {
			return
		}
		out := make([]int64, 2*n)
		for {
			i := t.index(at)
			t.Box(i, out)
			if !yield(i, out) || !advance(at, from, to) {
				return
			}
		}
	}
}

func (t *Tiling) index(at []int64) int {
	var i int64
	for d, a := range at {
		i = i*t.cells[d] + a
	}
	return int(i)
}

// advance steps at through [from, to) in row-major order; false at the end.
func advance(at, from, to []int64) bool {
	for d := len(at) - 1; d >= 0; d-- {
		if at[d]++; at[d] < to[d] {
			return true
		}
		at[d] = from[d]
	}
	return false
}
