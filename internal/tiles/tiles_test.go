package tiles

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"
)

// naive lists the tiles of a box by walking over all cells of the source.
func naive(shape, grid, box []int64) (tiles [][]int64) {
	var rec func(d int, tile []int64)
	rec = func(d int, tile []int64) {
		if d == len(shape) {
			tiles = append(tiles, slices.Clone(tile))
			return
		}
		for at := int64(0); at < shape[d]; at += grid[d] {
			lo, hi := max(at, box[2*d]), min(at+grid[d], box[2*d+1])
			if lo < hi {
				rec(d+1, append(tile, lo, hi))
			}
		}
	}
	rec(0, nil)
	return tiles
}

func randomCase(r *rand.Rand) (shape, grid, box []int64) {
	for range r.IntN(4) {
		n := 1 + r.Int64N(12)
		lo := r.Int64N(n)
		shape = append(shape, n)
		grid = append(grid, 1+r.Int64N(n))
		box = append(box, lo, lo+r.Int64N(n-lo+1))
	}
	return shape, grid, box
}

func contains(lo, hi, tile []int64) bool {
	for d := range lo {
		if tile[2*d] < lo[d] || tile[2*d+1] > hi[d] {
			return false
		}
	}
	return true
}

func touches(lo, hi, tile []int64) bool {
	for d := range lo {
		if lo[d] >= hi[d] || tile[2*d] >= hi[d] || tile[2*d+1] <= lo[d] {
			return false
		}
	}
	return true
}

// listed writes down what an enumeration yields.
func listed(each func(grid, box, lo, hi []int64, f func(int, []int64, []int64) error) error, grid, box, lo, hi []int64) (got []string) {
	_ = each(grid, box, lo, hi, func(i int, tlo, thi []int64) error {
		var tile []int64
		for d := range tlo {
			tile = append(tile, tlo[d], thi[d])
		}
		got = append(got, fmt.Sprint(i, tile))
		return nil
	})
	return got
}

func TestWithinAgreesWithWalkingAllCells(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		shape, grid, box := randomCase(r)
		all := naive(shape, grid, box)
		if got := Count(grid, box); got != len(all) {
			t.Fatalf("shape %v grid %v box %v: %d tiles, want %d", shape, grid, box, got, len(all))
		}
		var lo, hi []int64
		for d := range shape {
			a := r.Int64N(shape[d] + 1)
			lo, hi = append(lo, a), append(hi, a+r.Int64N(shape[d]-a+1))
		}
		var whole, cut []string
		for i, tile := range all {
			switch {
			case contains(lo, hi, tile):
				whole = append(whole, fmt.Sprint(i, tile))
			case touches(lo, hi, tile):
				cut = append(cut, fmt.Sprint(i, tile))
			}
		}
		if got := listed(Within, grid, box, lo, hi); !slices.Equal(got, whole) {
			t.Fatalf("shape %v grid %v box %v within %v %v:\n got %v\nwant %v", shape, grid, box, lo, hi, got, whole)
		}
		if got := listed(Edges, grid, box, lo, hi); !slices.Equal(got, cut) {
			t.Fatalf("shape %v grid %v box %v edges of %v %v:\n got %v\nwant %v", shape, grid, box, lo, hi, got, cut)
		}
	}
}

func TestDigestAgreesWithHashingElementByElement(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	mem := make([]byte, 1<<16)
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	for range 500 {
		elsize := int64(1) << r.IntN(4)
		var shape, stride []int64
		for range r.IntN(4) {
			shape = append(shape, 1+r.Int64N(9))
			stride = append(stride, elsize*r.Int64N(60))
		}
		off := r.Int64N(100)
		var flat []byte
		var rec func(d int, at int64)
		rec = func(d int, at int64) {
			if d == len(shape) {
				flat = append(flat, mem[at:at+elsize]...)
				return
			}
			for i := range shape[d] {
				rec(d+1, at+i*stride[d])
			}
		}
		rec(0, off)
		got, err := Digest(mem, off, elsize, shape, stride)
		if want := xxh3.Hash(flat); err != nil || got != want {
			t.Fatalf("off %d elsize %d shape %v stride %v: %x, %v; want %x", off, elsize, shape, stride, got, err, want)
		}
	}
}

// TestLargeTilesAreHashedWhole takes boxes that don't fit the buffer in which runs are gathered, also transposed ones.
func TestLargeTilesAreHashedWhole(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	mem := make([]byte, 4<<20)
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	for _, c := range []struct{ shape, stride []int64 }{
		{[]int64{400, 300}, []int64{700, 2}},
		{[]int64{300, 400}, []int64{2, 700}},
		{[]int64{3, 40, 700}, []int64{90_000, 2_100, 2}},
		{[]int64{3, 40, 700}, []int64{2, 6, 3000}},
		{[]int64{2, 3, 200, 50}, []int64{1_500_000, 100, 5_000, 2}},
		{[]int64{3, 50_000}, []int64{200_000, 2}}, // rows longer than the buffer
		{[]int64{2, 1, 70_000}, []int64{300_000, 1, 4}},
		{[]int64{200, 3, 120}, []int64{2, 400, 1200}},
	} {
		packed, nbytes := make([]int64, len(c.shape)), int64(2)
		for d := len(c.shape) - 1; d >= 0; d-- {
			packed[d] = nbytes
			nbytes *= c.shape[d]
		}
		flat := make([]byte, nbytes)
		for e := int64(0); e < nbytes; e += 2 { // element by element, by division
			at := int64(0)
			for d := range c.shape {
				at += e / packed[d] % c.shape[d] * c.stride[d]
			}
			copy(flat[e:], mem[at:at+2])
		}
		got, err := Digest(mem, 0, 2, c.shape, c.stride)
		if want := xxh3.Hash(flat); err != nil || got != want {
			t.Errorf("shape %v, strides %v: %x, %v; want %x", c.shape, c.stride, got, err, want)
		}
		out := make([]byte, nbytes)
		if err := Copy(out, 0, packed, mem, 0, c.stride, c.shape, 2); err != nil || !slices.Equal(out, flat) {
			t.Errorf("shape %v, strides %v: the copy differs, %v", c.shape, c.stride, err)
		}
		if err := Copy(out[1:], 0, packed, mem, 0, c.stride, c.shape, 2); err == nil {
			t.Errorf("shape %v: a copy left its memory", c.shape)
		}
	}
}

func TestDigestRefusesToLeaveMemory(t *testing.T) {
	t.Parallel()
	mem := make([]byte, 100)
	for _, c := range []struct {
		off           int64
		shape, stride []int64
	}{{-1, []int64{1}, []int64{1}}, {0, []int64{101}, []int64{1}}, {50, []int64{2}, []int64{50}}, {0, []int64{2}, []int64{-1}}} {
		if _, err := Digest(mem, c.off, 1, c.shape, c.stride); err == nil {
			t.Errorf("%+v was digested", c)
		}
	}
}

func TestShardsOfEveryCutHaveTheDigestsOfTheirTiles(t *testing.T) {
	t.Parallel()
	// One source of 10×12 two-byte elements in rows 0–4 and 4–10, the second stored with a wider row.
	table := Table{
		ElSize: []int64{2}, ShapeEnd: []uint32{2}, Grid: []int64{4, 5},
		Source: []uint32{0, 0}, Offset: []int64{8, 1000}, Box: []int64{0, 4, 0, 12, 4, 10, 0, 12}, Stride: []int64{12, 1, 20, 1},
	}
	mem := make([]byte, 4096)
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	got, err := table.DigestAll(mem)
	if err != nil {
		t.Fatal(err)
	}
	rows, total := table.Shards()
	if total != 3+2*3 || len(got) != total || rows[1].First != 3 {
		t.Fatalf("%d digests, second shard at %d", total, rows[1].First)
	}
	// Tile 4 of the second shard: rows 8–10, columns 5–10.
	var flat []byte
	for row := range int64(2) {
		at := 1000 + (4+row)*40 + 5*2
		flat = append(flat, mem[at:at+10]...)
	}
	if want := xxh3.Hash(flat); got[3+4] != want {
		t.Fatalf("tile 4 of shard 1 is %x, want %x", got[3+4], want)
	}
}

func TestChooseGrid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape []int64
		size  int64
		want  []int64
	}{
		{[]int64{768, 2048}, 2, []int64{48, 128}},     // a sixteenth of each: tiles of 12 KiB
		{[]int64{2048, 768}, 2, []int64{128, 96}},     // of columns an eighth: rows of 96 bytes cost twice as much
		{[]int64{2048, 1024}, 2, []int64{128, 64}},    // rows of 128 bytes don't
		{[]int64{151936, 2048}, 2, []int64{256, 128}}, // cut in rows down to 64 KiB
		{[]int64{5}, 4, []int64{5}},
		{[]int64{}, 4, []int64{}},
		{[]int64{0, 16}, 2, []int64{1, 16}},
		{[]int64{1000, 64}, 2, []int64{32, 16}}, // steps of a power of two, and both dimensions stay cut, rows in four
	} {
		got := ChooseGrid(c.shape, c.size, Options{})
		if !slices.Equal(got, c.want) {
			t.Errorf("%v of %d bytes: %v, want %v", c.shape, c.size, got, c.want)
		}
	}
}

func TestGridOfRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape []int64
		whole bool // rows
	}{
		{[]int64{2048, 768}, true},
		{[]int64{4096, 2048}, true},
		{[]int64{128, 768, 2048}, true},
		{[]int64{4096}, false},
		{[]int64{64, 1 << 20}, false}, // a row is larger than a tile may be
	} {
		got, last := ChooseGrid(c.shape, 2, Options{Rows: true}), len(c.shape)-1
		if n := bytes(got, 2); n > defaultMax || n < leastMin {
			t.Errorf("shape %v: grid %v of %d bytes", c.shape, got, n)
		}
		if whole := got[last] == c.shape[last]; whole != c.whole {
			t.Errorf("shape %v: grid %v", c.shape, got)
		}
	}
}

func TestCheckRefusesTilesOutOfBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape, grid []int64
		ok          bool
	}{
		{[]int64{2048, 768}, []int64{128, 48}, true},
		{[]int64{2048, 768}, []int64{1 << 40, 1 << 40}, true}, // the whole of 3 MiB
		{[]int64{4096, 4096}, []int64{4096, 4096}, false},
		{[]int64{2048, 768}, []int64{1, 1}, false},
		{[]int64{2048, 768}, []int64{0, 768}, false},
		{[]int64{3}, []int64{1}, false},
		{[]int64{3}, []int64{3}, true},
		{[]int64{0, 5}, []int64{1, 5}, true},
		{nil, nil, true},
	} {
		if err := Check(c.shape, c.grid, 2); (err == nil) != c.ok {
			t.Errorf("shape %v, grid %v: %v", c.shape, c.grid, err)
		}
	}
}

func TestGridIsWithinBoundsAndPositive(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		var shape []int64
		for range r.IntN(5) {
			shape = append(shape, r.Int64N(3000))
		}
		grid := ChooseGrid(shape, 2, Options{})
		for d, g := range grid {
			if g < 1 || g > max(1, shape[d]) {
				t.Fatalf("shape %v: grid %v", shape, grid)
			}
		}
		if n := bytes(grid, 2); n > defaultMax {
			t.Fatalf("shape %v: tiles of %d bytes", shape, n)
		}
	}
}

func BenchmarkDigest(b *testing.B) {
	mem := make([]byte, 64<<20)
	for name, c := range map[string]struct{ shape, stride []int64 }{
		"contiguous":        {[]int64{1 << 19}, []int64{2}},
		"rows of 4 KiB":     {[]int64{256, 2048}, []int64{8192, 2}},
		"rows of 96 B":      {[]int64{10922, 48}, []int64{1536, 2}},
		"transposed":        {[]int64{128, 48}, []int64{2, 4096}},
		"large, transposed": {[]int64{512, 1024}, []int64{2, 4096}},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(2 * c.shape[0] * max(1, append(c.shape, 1)[1]))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Digest(mem, 0, 2, c.shape, c.stride); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestCountsOfHostileBoxesStayCounts(t *testing.T) {
	t.Parallel()
	const most = 1 << 48
	for ndim := 1; ndim <= maxDims; ndim++ {
		var grid, box []int64
		for range ndim {
			grid, box = append(grid, 1), append(box, 0, most)
		}
		if n := Count(grid, box); n != countLimit {
			t.Errorf("%d dimensions of %d tiles: count %d, want %d", ndim, int64(most), n, int64(countLimit))
		}
	}
}
