package served

import (
	"fmt"
	"math"

	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Options say what is cut, and how finely. The zero value cuts every matrix that is large enough.
type Options struct {
	Parts    int64                                 // most blocks that a source's columns are cut in; 1: none are; default 16, at most 64
	MinBytes int64                                 // a block of the whole source has no less; default 64 KiB
	Columns  func(name string, shape []int64) bool // which sources may be cut; default all
	Tiles    tiles.Options                         // of the sources that are cut, and of a layout that has no grid
	Workers  int                                   // goroutines that copy; default GOMAXPROCS
}

func (o *Options) validate() error {
	if o.Parts == 0 {
		o.Parts = 16 // tensor-parallel sizes up to 16 take whole blocks
	}
	if o.MinBytes == 0 {
		o.MinBytes = 64 << 10
	}
	if o.Columns == nil {
		o.Columns = func(string, []int64) bool { return true }
	}
	if o.Parts < 1 || o.Parts > 64 || o.MinBytes < 0 || o.Workers < 0 {
		return fmt.Errorf("%d parts (1 to 64), blocks of at least %d bytes, %d workers", o.Parts, o.MinBytes, o.Workers)
	}
	return nil
}

// width is how many columns a block of source i has; all of them where the source isn't cut. It depends on the whole
// source and not on the shard, so that the blocks of all ranks meet.
func (o *Options) width(l *messages.Layout, i int) int64 {
	shape := l.Shape(i)
	n := len(shape)
	if n == 0 {
		return 1
	}
	columns, rows := shape[n-1], int64(1)
	for _, d := range shape[:n-1] {
		rows = mulBounded(rows, d)
	}
	if n < 2 || rows < 2 || !o.Columns(l.Names[i], shape) {
		return max(1, columns)
	}
	for parts := o.Parts; parts > 1; parts /= 2 { // halves of aligned blocks are aligned too
		w := columns / parts
		if columns%parts == 0 && mulBounded(rows, w*l.DTypes[i].Size()) >= o.MinBytes {
			return max(1, w)
		}
	}
	return max(1, columns)
}

// mulBounded multiplies sizes that nobody has checked yet.
func mulBounded(a, b int64) int64 {
	if a != 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// shardOf is one shard of a packed layout.
type shardOf struct {
	source int
	region uint32
	offset int64   // bytes
	box    []int64 // lo0,hi0,…
	elsize int64
}

// shards lists the rows of a packed layout.
func shards(l *messages.Layout) []shardOf {
	out := make([]shardOf, len(l.Source))
	at := 0
	for k, src := range l.Source {
		n := l.NDim(int(src))
		out[k] = shardOf{
			source: int(src), region: l.Region[k], offset: l.Offset[k], box: l.Box[2*at : 2*(at+n)], elsize: l.DTypes[src].Size(),
		}
		at += n
	}
	return out
}

// nbytes is the size of a shard's box.
func (s *shardOf) nbytes() int64 {
	n := s.elsize
	for d := 0; d < len(s.box); d += 2 {
		n *= s.box[d+1] - s.box[d]
	}
	return n
}

// pieces gives the intervals of columns that a shard is cut in: cells of the given width, from the source's own zero,
// as far as the box has them. A shard without bytes stays one.
func (s *shardOf) pieces(width int64) [][2]int64 {
	n := len(s.box)
	if n == 0 || s.nbytes() == 0 {
		return [][2]int64{{0, 0}}
	}
	lo, hi := s.box[n-2], s.box[n-1]
	var out [][2]int64
	for a := lo; a < hi; {
		b := min(hi, (a/width+1)*width)
		out = append(out, [2]int64{a, b})
		a = b
	}
	return out
}

// grid is the tile extents of source i in a served layout. A cut source's tiles are as wide as its blocks, so that each
// is one run of bytes where it is served.
func (o *Options) grid(plain *messages.Layout, i int, width int64) []int64 {
	shape := plain.Shape(i)
	n, size := len(shape), plain.DTypes[i].Size()
	switch {
	case n > 0 && width < shape[n-1]:
		return append(tiles.ChooseGrid(shape[:n-1], width*size, o.Tiles), width)
	case plain.Grid != nil:
		end := int(plain.ShapeEnd[i])
		return plain.Grid[end-n : end]
	default:
		return Grid(plain.Names[i], shape, size, o.Tiles)
	}
}

// Grid chooses the tiles of a source that is not cut. Sources of which tensor parallelism takes rows have tiles of whole
// rows, which digest in less than half the time; a reader that slices them otherwise still verifies, by reading the tiles
// at its edges whole.
func Grid(name string, shape []int64, elsize int64, o tiles.Options) []int64 {
	o.Rows = o.Rows || shardlayout.CutsRows(name, shape)
	return tiles.ChooseGrid(shape, elsize, o)
}

// inherit begins a served layout with what doesn't change.
func inherit(plain *messages.Layout) *messages.Layout {
	return &messages.Layout{
		Rank: plain.Rank, Names: plain.Names, DTypes: plain.DTypes, ShapeEnd: plain.ShapeEnd, Shapes: plain.Shapes, Groups: plain.Groups,
	}
}
