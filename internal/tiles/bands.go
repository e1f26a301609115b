package tiles

// Bands cuts the box [lo, hi) of a source along its tiles into boxes of about nbytes, in row-major order: each tile that lies
// whole in the box lies whole in one of them. Only a dimension inside of single steps of all outer ones is cut, so that where
// the source lies row-major the bands follow each other in memory; a row of tiles that is larger stays whole. The bounds
// that f is given are reused.
func Bands(grid, lo, hi []int64, elsize, nbytes int64, f func(lo, hi []int64) error) error {
	var a, b [maxDims]int64
	copy(a[:], lo)
	copy(b[:], hi)
	return bands(grid, a[:len(lo)], b[:len(hi)], 0, elsize, nbytes, f)
}

func bands(grid, lo, hi []int64, d int, elsize, nbytes int64, f func(lo, hi []int64) error) error {
	total := elsize
	for e := range lo {
		total *= hi[e] - lo[e]
	}
	switch {
	case total == 0:
		return nil
	case total <= nbytes || d == len(lo):
		return f(lo, hi)
	}
	first, last := lo[d], hi[d]
	defer func() { lo[d], hi[d] = first, last }()
	step := max(1, nbytes/(total/(last-first))/grid[d]) * grid[d]
	for at := first; at < last; at = hi[d] {
		lo[d], hi[d] = at, min(last, (at/grid[d])*grid[d]+step)
		var err error
		if hi[d]-lo[d] == 1 {
			err = bands(grid, lo, hi, d+1, elsize, nbytes, f)
		} else {
			err = f(lo, hi)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
