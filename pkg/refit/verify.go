package refit

import (
	"fmt"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
)

// tileTable is the geometry of a layout's tiles.
func tileTable(l *messages.Layout) *tiles.Table {
	t := &tiles.Table{
		ElSize: make([]int64, len(l.DTypes)), ShapeEnd: l.ShapeEnd, Grid: l.Grid,
		Source: l.Source, Offset: l.Offset, Box: l.Box, Stride: l.Stride,
	}
	for i, d := range l.DTypes {
		t.ElSize[i] = plan.DType(d).Size()
	}
	return t
}

// tileIndex says where the digests of each shard are, for each rank of a version. It follows from the layouts alone.
// A rank without a grid has no shards in it: nothing that it serves can be verified.
type tileIndex [][]tiles.Shard

// Tiles that are out of bounds are refused: a tile that a slice cuts is read whole to be verified, into memory that is
// bounded, and of tiles of a few bytes each nobody would get done with the digests.
func newTileIndex(v *messages.Version) (tileIndex, error) {
	index := make(tileIndex, len(v.Ranks))
	for r := range v.Ranks {
		l := v.Ranks[r].Layout
		if l.Grid == nil {
			continue
		}
		if err := checkGrid(l); err != nil {
			return nil, fmt.Errorf("layout of rank %d: %w", r, err)
		}
		index[r], _ = tileTable(l).Shards()
	}
	return index, nil
}

func checkGrid(l *messages.Layout) error {
	first := uint32(0)
	for i, end := range l.ShapeEnd {
		if err := tiles.Check(l.Shapes[first:end], l.Grid[first:end], plan.DType(l.DTypes[i]).Size()); err != nil {
			return fmt.Errorf("source %s: %w", l.Names[i], err)
		}
		first = end
	}
	return nil
}

// digests are the tile digests of one version.
type digests struct {
	index   tileIndex
	version *messages.Version
}

// of is the digests of one shard, nil where the rank publishes none of its source: then nothing of it can be verified, and
// it counts as bytes that were not.
func (d *digests) of(rank, shard int) []uint64 {
	sums, rows := d.version.Ranks[rank].Tiles, d.index[rank]
	if sums == nil || rows == nil || !sums.Carries(rows[shard].Source) {
		return nil
	}
	end := len(sums.Digests)
	if shard+1 < len(rows) {
		end = rows[shard+1].First
	}
	return sums.Digests[rows[shard].First:end]
}

// check refuses digests that are not as many as the layout has tiles: they would be taken for those of other tiles, or
// leave tiles unverified that their publisher meant to be.
func (d *digests) check() error {
	for rank := range d.version.Ranks {
		sums := d.version.Ranks[rank].Tiles
		if sums == nil {
			continue
		}
		want := 0
		if rows := d.index[rank]; len(rows) > 0 {
			last := &rows[len(rows)-1]
			want = last.First + tiles.Count(last.Grid, last.Box)
		}
		if len(sums.Digests) != want {
			return as(Torn, fmt.Errorf("rank %d publishes %d tile digests, its layout has %d tiles", rank, len(sums.Digests), want))
		}
	}
	return nil
}

// verifier compares what was read with what was published.
type verifier struct {
	digests
	names func(rank int, source uint32) string
}

func newVerifier(v *messages.Version, found *planned) *verifier {
	return &verifier{digests: digests{found.tiles, v}, names: func(rank int, source uint32) string {
		return v.Ranks[rank].Layout.Names[source]
	}}
}

// piece checks the tiles of a shard that lie whole in a piece of it, where the piece lies in mem, and returns their bytes.
func (c *verifier) piece(p *plan.Piece, mem []byte) (int64, error) {
	sums := c.of(p.Rank, p.Shard)
	if len(sums) == 0 {
		return 0, nil
	}
	row := &c.index[p.Rank][p.Shard]
	layout := c.version.Ranks[p.Rank].Layout
	elsize := plan.DType(layout.DTypes[row.Source]).Size()
	var verified int64
	var shape [maxDims]int64
	err := tiles.Within(row.Grid, row.Box, p.Lo, p.Hi, func(i int, lo, hi []int64) error {
		off, nbytes := p.Off, elsize
		for d := range lo {
			off += (lo[d] - p.Lo[d]) * p.Stride[d]
			shape[d] = hi[d] - lo[d]
			nbytes *= shape[d]
		}
		sum, err := tiles.Digest(mem, off, elsize, shape[:len(lo)], p.Stride)
		if err != nil {
			return err
		}
		if sum != sums[i] {
			return as(CorruptTile, &TileError{
				Rank: p.Rank, Source: c.names(p.Rank, row.Source), Lo: append([]int64(nil), lo...), Hi: append([]int64(nil), hi...),
				Published: sums[i], Found: sum,
			})
		}
		verified += nbytes
		return nil
	})
	return verified, err
}

// nbytes is the size of a piece.
func (c *verifier) nbytes(p *plan.Piece) int64 {
	layout := c.version.Ranks[p.Rank].Layout
	n := plan.DType(layout.DTypes[layout.Source[p.Shard]]).Size()
	for d := range p.Lo {
		n *= p.Hi[d] - p.Lo[d]
	}
	return n
}

// maxDims is the largest number of dimensions that a source has.
const maxDims = 8

// TileError is a tile whose bytes are not those that its publisher digested.
type TileError struct {
	Rank             int
	Source           string
	Lo, Hi           []int64 // [Lo, Hi) in the source's elements
	Published, Found uint64
}

// Error names rank, source and box.
func (e *TileError) Error() string {
	return fmt.Sprintf("bytes of source %s, box %v to %v, read from rank %d have digest %016x, its publisher says %016x",
		e.Source, e.Lo, e.Hi, e.Rank, e.Found, e.Published)
}
