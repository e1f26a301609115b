package tiles

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Bands cover a box once, and no tile that lies whole in the box is cut by them.
func TestBandsHoldEveryTileOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(31, 32))
	for range 500 {
		n := 1 + r.IntN(4)
		grid, box, lo, hi := make([]int64, n), make([]int64, 2*n), make([]int64, n), make([]int64, n)
		for d := range n {
			grid[d] = 1 + r.Int64N(5)
			box[2*d] = r.Int64N(6)
			box[2*d+1] = box[2*d] + 1 + r.Int64N(14)
			lo[d] = box[2*d] + r.Int64N(box[2*d+1]-box[2*d])
			hi[d] = lo[d] + 1 + r.Int64N(box[2*d+1]-lo[d])
		}
		var want, got []string
		collect := func(to *[]string) func(int, []int64, []int64) error {
			return func(i int, lo, hi []int64) error { *to = append(*to, fmt.Sprint(i, lo, hi)); return nil }
		}
		if err := Within(grid, box, lo, hi, collect(&want)); err != nil {
			t.Fatal(err)
		}
		volume := int64(0)
		err := Bands(grid, lo, hi, 2, 1+r.Int64N(400), func(blo, bhi []int64) error {
			v := int64(1)
			for d := range blo {
				v *= bhi[d] - blo[d]
			}
			volume += v
			return Within(grid, box, blo, bhi, collect(&got))
		})
		whole := int64(1)
		for d := range lo {
			whole *= hi[d] - lo[d]
		}
		slices.Sort(want)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) || volume != whole {
			t.Fatalf("grid %v, box %v, [%v, %v): %d of %d elements, tiles %v, want %v (%v)", grid, box, lo, hi, volume, whole, got, want, err)
		}
	}
}

func TestBandsFollowTheRowsOfTiles(t *testing.T) {
	t.Parallel()
	count := func(grid, hi []int64, nbytes int64) (n int) {
		err := Bands(grid, make([]int64, len(hi)), hi, 2, nbytes, func(_, _ []int64) error { n++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct {
		grid, hi []int64
		nbytes   int64
		want     int
	}{
		{[]int64{128, 48}, []int64{2048, 768}, 256 << 10, 16},       // a row of tiles is 192 KiB
		{[]int64{1, 128, 48}, []int64{4, 2048, 768}, 256 << 10, 64}, // of each expert
		{[]int64{8, 128, 48}, []int64{8, 2048, 768}, 256 << 10, 1},  // tiles go through all experts
		{[]int64{128, 48}, []int64{2048, 768}, 1 << 10, 16},         // no finer than tiles
		{[]int64{128, 48}, []int64{2048, 768}, 4 << 20, 1},          // all of it
		{[]int64{16}, []int64{1 << 20}, 64 << 10, 32},               // one dimension
		{[]int64{128, 48}, []int64{0, 768}, 1 << 10, 0},             // nothing
	} {
		if n := count(c.grid, c.hi, c.nbytes); n != c.want {
			t.Errorf("grid %v of %v in %d bytes: %d bands, want %d", c.grid, c.hi, c.nbytes, n, c.want)
		}
	}
}
