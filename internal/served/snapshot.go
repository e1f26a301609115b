package served

import (
	"fmt"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// Snapshot turns memory of one plain layout into memory of its served layout, where it lies. It is used for any number of
// versions, by one goroutine at a time.
type Snapshot struct {
	o      Options
	plain  *messages.Layout
	served *messages.Layout
	shards []cutShard // that become more than one block
}

// cutShard is one plain shard of two dimensions or more, and what becomes of it.
type cutShard struct {
	shardOf
	blocks []block
}

// block is one shard of the served layout.
type block struct {
	lo, hi int64 // columns
	offset int64 // bytes in the region
}

// New finds the served layout of a plain one, which must be valid, of one region, and packed.
func New(plain *messages.Layout, o Options) (*Snapshot, error) {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("lay out the served memory of rank %d: %w", plain.Rank, fmt.Errorf(format, args...))
	}
	if err := o.validate(); err != nil {
		return nil, refuse("%w", err)
	}
	if len(plain.Regions) != 1 || plain.Stride != nil {
		return nil, refuse("%d regions, strides: %t; shards are repacked where they lie, packed, in one", len(plain.Regions), plain.Stride != nil)
	}
	s := &Snapshot{o: o, plain: plain, served: inherit(plain)}
	widths := make([]int64, len(plain.Names))
	for i := range widths {
		widths[i] = o.width(plain, i)
		s.served.Grid = append(s.served.Grid, o.grid(plain, i, widths[i])...)
	}
	end := int64(1) // a mapping can't be empty
	for k, sh := range shards(plain) {
		if plain.Box == nil && len(sh.box) > 0 || sh.region != 0 {
			return nil, refuse("shard %d has no box, or no region %d", k, sh.region)
		}
		end = max(end, s.add(sh, widths[sh.source]))
	}
	s.served.Regions = []int64{max(end, plain.Regions[0])}
	return s, nil
}

// add appends the blocks of a shard, which lie where it did, to the served layout, and gives their end.
func (s *Snapshot) add(sh shardOf, width int64) int64 {
	l, at := s.served, sh.offset
	c := cutShard{shardOf: sh}
	pieces := sh.pieces(width)
	for _, p := range pieces {
		box := append([]int64(nil), sh.box...)
		if n := len(box); len(pieces) > 1 {
			box[n-2], box[n-1] = p[0], p[1]
		}
		l.Source, l.Region, l.Offset = append(l.Source, uint32(sh.source)), append(l.Region, 0), append(l.Offset, at)
		l.Box = append(l.Box, box...)
		c.blocks = append(c.blocks, block{lo: p[0], hi: p[1], offset: at})
		at += (&shardOf{box: box, elsize: sh.elsize}).nbytes()
	}
	if len(pieces) > 1 {
		s.shards = append(s.shards, c)
	}
	return at
}

// Layout is the served layout, for PublisherConfig.Layout and Publication.Layout. It isn't changed any more.
func (s *Snapshot) Layout() *messages.Layout { return s.served }

// Nbytes is the size of the served region.
func (s *Snapshot) Nbytes() int64 { return s.served.Regions[0] }

// Cut says whether any source is served in blocks.
func (s *Snapshot) Cut() bool { return len(s.shards) > 0 }
