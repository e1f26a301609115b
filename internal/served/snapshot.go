package served

import (
	"fmt"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Snapshot turns memory of one plain layout into memory of its served layout. It is used for any number of versions, by
// one goroutine at a time.
type Snapshot struct {
	o       Options
	plain   *messages.Layout
	served  *messages.Layout
	shards  []cutShard
	units   []unit
	digests int
	inPlace bool
	scratch int64 // bytes of the largest shard that is cut
}

// cutShard is one plain shard and what became of it. Dimensions are at least two: those that are missing have one cell.
type cutShard struct {
	shardOf
	grid   []int64
	blocks []block
}

// block is one shard of the served layout.
type block struct {
	lo, hi int64 // columns
	offset int64 // bytes in the served region
	first  int   // index of its first digest
}

// unit is one band: the cell that it has in each dimension but the last.
type unit struct {
	shard int
	cell  [messages.MaxDims]int64
	band  int // number of the band in its shard
}

// New finds the served layout of a plain one, which must be valid.
func New(plain *messages.Layout, o Options) (*Snapshot, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("lay out the served memory of rank %d: %w", plain.Rank, err)
	}
	s := &Snapshot{o: o, plain: plain, served: inherit(plain), inPlace: len(plain.Regions) == 1 && plain.Stride == nil}
	widths := make([]int64, len(plain.Names))
	for i := range widths {
		widths[i] = o.width(plain, i)
		s.served.Grid = append(s.served.Grid, o.grid(plain, i, widths[i])...)
	}
	end := int64(0)
	for k, sh := range shards(plain) {
		if plain.Box == nil && len(sh.box) > 0 || int(sh.region) >= len(plain.Regions) {
			return nil, fmt.Errorf("lay out the served memory of rank %d: shard %d has no box, or no region %d", plain.Rank, k, sh.region)
		}
		end = s.add(sh, widths[sh.source], end)
	}
	s.served.Regions = []int64{max(1, end)} // a mapping can't be empty
	if s.inPlace {
		s.served.Regions[0] = max(s.served.Regions[0], plain.Regions[0])
	}
	return s, nil
}

// add appends the blocks of a shard to the served layout, from byte end on, and gives the new end. In place they lie
// where the shard did.
func (s *Snapshot) add(sh shardOf, width, end int64) int64 {
	l, at := s.served, sh.offset
	if !s.inPlace {
		at = (end + alignment - 1) &^ (alignment - 1)
	}
	c := cutShard{shardOf: sh, grid: s.gridOf(sh.source)}
	rest := sh.nbytes()
	pieces := sh.pieces(width)
	for _, p := range pieces {
		box := append([]int64(nil), sh.box...)
		if n := len(box); len(pieces) > 1 {
			box[n-2], box[n-1] = p[0], p[1]
		}
		l.Source, l.Region, l.Offset = append(l.Source, uint32(sh.source)), append(l.Region, 0), append(l.Offset, at)
		l.Box = append(l.Box, box...)
		b := shardOf{box: box, elsize: sh.elsize}
		c.blocks = append(c.blocks, block{lo: p[0], hi: p[1], offset: at, first: s.digests})
		at += b.nbytes()
		s.digests += tiles.Count(c.grid, box)
	}
	if len(pieces) > 1 {
		s.scratch = max(s.scratch, rest)
	}
	if rest > 0 {
		c.widen()
		s.shards = append(s.shards, c)
		s.addUnits(len(s.shards) - 1)
	}
	return max(end, at)
}

func (s *Snapshot) gridOf(source int) []int64 {
	end := int(s.served.ShapeEnd[source])
	return s.served.Grid[end-s.served.NDim(source) : end]
}

// widen gives a shard of fewer than two dimensions a last one of a single element: then its tiles, in order, are bands.
func (c *cutShard) widen() {
	for len(c.box) < 4 {
		if c.stride != nil {
			c.stride = append(append([]int64(nil), c.stride...), 1)
		}
		c.box = append(append([]int64(nil), c.box...), 0, 1)
		c.grid = append(append([]int64(nil), c.grid...), 1)
		for i := range c.blocks {
			c.blocks[i].lo, c.blocks[i].hi = 0, 1
		}
	}
	if n := len(c.box); len(c.blocks) == 1 {
		c.blocks[0].lo, c.blocks[0].hi = c.box[n-2], c.box[n-1]
	}
}

// addUnits lists the bands of a shard.
func (s *Snapshot) addUnits(shard int) {
	c := &s.shards[shard]
	outer := len(c.grid) - 1
	var first, last [messages.MaxDims]int64
	for d := range outer {
		first[d], last[d] = c.box[2*d]/c.grid[d], (c.box[2*d+1]-1)/c.grid[d]
	}
	u := unit{shard: shard, cell: first}
	for {
		s.units = append(s.units, u)
		u.band++
		d := outer - 1
		for ; d >= 0; d-- {
			if u.cell[d]++; u.cell[d] <= last[d] {
				break
			}
			u.cell[d] = first[d]
		}
		if d < 0 {
			return
		}
	}
}

// Layout is the served layout, for PublisherConfig.Layout and Publication.Layout. It isn't changed any more.
func (s *Snapshot) Layout() *messages.Layout { return s.served }

// Nbytes is the size of the served region.
func (s *Snapshot) Nbytes() int64 { return s.served.Regions[0] }

// Cut says whether any source is served in blocks.
func (s *Snapshot) Cut() bool { return s.scratch > 0 }
