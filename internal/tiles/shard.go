package tiles

import (
	"context"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"
)

// Shard is one box in memory: what is digested, or what was read and is checked.
type Shard struct {
	Bytes  []byte  // the memory it lies in
	Off    int64   // bytes from there to the box's first element
	Box    []int64 // in the source's coordinates
	Stride []int64 // bytes, by dimension
	Grid   []int64 // of the source
	Elsize int64   // bytes
}

// Packed gives the strides, in bytes, of a box that lies row-major and dense.
func Packed(box []int64, elsize int64) []int64 {
	stride := make([]int64, len(box)/2)
	step := elsize
	for d := len(stride) - 1; d >= 0; d-- {
		stride[d] = step
		step *= box[2*d+1] - box[2*d]
	}
	return stride
}

func (s *Shard) check() error {
	if len(s.Box) != 2*len(s.Stride) {
		return fmt.Errorf("%d bounds with %d strides", len(s.Box), len(s.Stride))
	}
	shape := make([]int64, len(s.Stride))
	for d := range shape {
		shape[d] = s.Box[2*d+1] - s.Box[2*d]
	}
	return within(int64(len(s.Bytes)), s.Off, shape, s.Stride, s.Elsize)
}

// sumTile digests the part of the shard's memory that holds a tile; shape is scratch.
func (s *Shard) sumTile(g *Digester, tile, shape []int64) uint64 {
	off := s.Off
	for d := range shape {
		off += (tile[2*d] - s.Box[2*d]) * s.Stride[d]
		shape[d] = tile[2*d+1] - tile[2*d]
	}
	return g.Sum(s.Bytes, off, shape, s.Stride, s.Elsize)
}

// Count gives the number of tiles of each shard, and their sum.
func Count(shards []Shard) (counts []int, total int, err error) {
	counts = make([]int, len(shards))
	for i := range shards {
		t, err := New(shards[i].Grid, shards[i].Box)
		if err != nil {
			return nil, 0, fmt.Errorf("shard %d: %w", i, err)
		}
		counts[i] = t.Len()
		total += counts[i]
	}
	return counts, total, nil
}

// unitBytes is about how much one goroutine digests before it asks for more.
const unitBytes = 8 << 20

// span is some of the tiles of one shard.
type span struct {
	shard    int
	from, to int // tiles
	out      []uint64
}

// DigestAll digests all tiles of all shards, in the order of shards and of tiles within each, on up to workers
// goroutines. It ends early with the context's error when ctx ends.
func DigestAll(ctx context.Context, shards []Shard, workers int) ([]uint64, error) {
	counts, total, err := Count(shards)
	if err != nil {
		return nil, fmt.Errorf("digest shards: %w", err)
	}
	out := make([]uint64, total)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, workers))
	for unit := range units(shards, counts, out) {
		g.Go(func() error { return digestUnit(ctx, shards, unit) })
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("digest shards: %w", err)
	}
	return out, nil
}

// units groups small shards, and cuts large ones, to about unitBytes each.
func units(shards []Shard, counts []int, out []uint64) iter.Seq[[]span] {
	return func(yield func([]span) bool) {
		var unit []span
		var nbytes int64
		for i, n := range counts {
			size := shards[i].nbytes()
			parts := max(1, min(int64(n), size/unitBytes))
			for p := range parts {
				from, to := int(int64(n)*p/parts), int(int64(n)*(p+1)/parts)
				unit = append(unit, span{shard: i, from: from, to: to, out: out[from:to]})
				if nbytes += size / parts; nbytes >= unitBytes {
					if !yield(unit) {
						return
					}
					unit, nbytes = nil, 0
				}
			}
			out = out[n:]
		}
		if len(unit) > 0 {
			yield(unit)
		}
	}
}

func (s *Shard) nbytes() int64 {
	n := s.Elsize
	for d := range len(s.Box) / 2 {
		n *= s.Box[2*d+1] - s.Box[2*d]
	}
	return n
}

func digestUnit(ctx context.Context, shards []Shard, unit []span) error {
	g := NewDigester()
	for _, sp := range unit {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := g.tiles(&shards[sp.shard], sp); err != nil {
			return fmt.Errorf("shard %d: %w", sp.shard, err)
		}
	}
	return nil
}

func (g *Digester) tiles(s *Shard, sp span) error {
	if err := s.check(); err != nil {
		return err
	}
	t, err := New(s.Grid, s.Box)
	if err != nil {
		return err
	}
	tile, shape := make([]int64, len(s.Box)), make([]int64, len(s.Stride))
	for i := range sp.out {
		t.Box(sp.from+i, tile)
		sp.out[i] = s.sumTile(g, tile, shape)
	}
	return nil
}
