package served

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Fill copies the plain layout's regions into served memory, on all cores, and digests each band right after its copy.
func (s *Snapshot) Fill(dst []byte, regions ...[]byte) (*messages.Tiles, error) {
	if len(regions) != len(s.plain.Regions) {
		return nil, s.refuse("%d regions of memory, the layout has %d", len(regions), len(s.plain.Regions))
	}
	for i, r := range regions {
		if int64(len(r)) < s.plain.Regions[i] {
			return nil, s.refuse("region %d has %d bytes, the layout needs %d", i, len(r), s.plain.Regions[i])
		}
	}
	if int64(len(dst)) < s.Nbytes() {
		return nil, s.refuse("%d bytes to fill, the layout needs %d", len(dst), s.Nbytes())
	}
	t := s.tiles()
	return t, s.parallel(len(s.units), func(i int) error {
		u := &s.units[i]
		return s.band(u, dst, regions[s.shards[u.shard].region], true, t.Digests)
	})
}

// Repack turns memory that is laid out plainly, of one packed region, into served memory where it is. Each worker needs a
// scratch buffer as large as the largest shard that is cut. An error leaves the memory undefined.
func (s *Snapshot) Repack(mem []byte) error {
	if !s.inPlace {
		return s.refuse("only one packed region can be repacked in place")
	}
	if int64(len(mem)) < s.Nbytes() {
		return s.refuse("%d bytes to repack, the layout needs %d", len(mem), s.Nbytes())
	}
	return s.parallel(len(s.shards), func(i int) error { return s.shuffle(&s.shards[i], mem) })
}

// Digest digests served memory: what Fill returns, for memory that was filled by others or repacked.
func (s *Snapshot) Digest(mem []byte) (*messages.Tiles, error) {
	if int64(len(mem)) < s.Nbytes() {
		return nil, s.refuse("%d bytes to digest, the layout needs %d", len(mem), s.Nbytes())
	}
	t := s.tiles()
	return t, s.parallel(len(s.units), func(i int) error { return s.band(&s.units[i], mem, nil, false, t.Digests) })
}

func (s *Snapshot) tiles() *messages.Tiles {
	return &messages.Tiles{Digests: make([]uint64, s.digests)}
}

func (s *Snapshot) refuse(format string, args ...any) error {
	return fmt.Errorf("make a snapshot of rank %d: %w", s.plain.Rank, fmt.Errorf(format, args...))
}

// scratches hold one shard each.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// shuffle moves a shard's rows to its blocks by way of a copy of the shard.
func (s *Snapshot) shuffle(c *cutShard, mem []byte) error {
	if len(c.blocks) < 2 {
		return nil
	}
	p := scratches.Get().(*[]byte)
	defer scratches.Put(p)
	n := c.nbytes()
	if int64(cap(*p)) < n {
		*p = make([]byte, n)
	}
	src := (*p)[:n]
	copy(src, mem[c.offset:c.offset+n])
	at := *c
	at.offset = 0
	var lo, shape [messages.MaxDims]int64
	dims := len(c.grid)
	for d := range dims {
		lo[d], shape[d] = c.box[2*d], c.box[2*d+1]-c.box[2*d]
	}
	for rows := c.grid[0]; lo[0] < c.box[1]; lo[0] += rows { // a few rows for all blocks, while they are in the cache
		shape[0] = min(rows, c.box[1]-lo[0])
		for i := range c.blocks {
			if err := at.copyBlock(&c.blocks[i], mem, src, lo[:dims-1], shape[:dims-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// parallel runs n jobs on the workers and gives the first error, after which no new job begins.
func (s *Snapshot) parallel(n int, job func(int) error) error {
	workers := s.o.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var next atomic.Int64
	var once sync.Once
	var first error
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := job(int(i)); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n))
				}
			}
		})
	}
	wg.Wait()
	return first
}

// band copies, if asked to, and digests the tiles of one band.
func (s *Snapshot) band(u *unit, dst, src []byte, move bool, digests []uint64) error {
	c := &s.shards[u.shard]
	outer := len(c.grid) - 1
	var lo, shape [messages.MaxDims]int64
	for d := range outer {
		lo[d] = max(c.box[2*d], u.cell[d]*c.grid[d])
		shape[d] = min(c.box[2*d+1], (u.cell[d]+1)*c.grid[d]) - lo[d]
	}
	for i := range c.blocks {
		b := &c.blocks[i]
		if move {
			if err := c.copyBlock(b, dst, src, lo[:outer], shape[:outer]); err != nil {
				return fmt.Errorf("copy shard %d: %w", u.shard, err)
			}
		}
		if err := c.digest(b, u.band, dst, lo[:outer], shape[:], digests); err != nil {
			return fmt.Errorf("digest shard %d: %w", u.shard, err)
		}
	}
	return nil
}

// packed gives the byte strides of a block where it is served.
func (c *cutShard) packed(b *block, stride []int64) {
	step := c.elsize
	for d := len(stride) - 1; d >= 0; d-- {
		stride[d] = step
		if d == len(stride)-1 {
			step *= b.hi - b.lo
		} else {
			step *= c.box[2*d+1] - c.box[2*d]
		}
	}
}

// plainStrides gives the byte strides of the shard where the trainer holds it.
func (c *cutShard) plainStrides(stride []int64) {
	step := c.elsize
	for d := len(stride) - 1; d >= 0; d-- {
		stride[d] = step
		step *= c.box[2*d+1] - c.box[2*d]
		if c.stride != nil {
			stride[d] = c.stride[d] * c.elsize
		}
	}
}

// copyBlock copies the rows [lo, lo+shape) of a block, over all of its columns.
func (c *cutShard) copyBlock(b *block, dst, src []byte, lo, shape []int64) error {
	n := len(c.grid)
	var from, to [messages.MaxDims]int64
	c.plainStrides(from[:n])
	c.packed(b, to[:n])
	so, do := c.offset+(b.lo-c.box[2*n-2])*from[n-1], b.offset
	for d := range lo {
		so += (lo[d] - c.box[2*d]) * from[d]
		do += (lo[d] - c.box[2*d]) * to[d]
	}
	var extent [messages.MaxDims]int64
	copy(extent[:], shape)
	extent[n-1] = b.hi - b.lo
	return tiles.Copy(dst, do, to[:n], src, so, from[:n], extent[:n], c.elsize)
}

// digest digests the tiles of a band that lie in one block. The block has one row of cells in its last dimension for each
// band, so its tiles follow each other.
func (c *cutShard) digest(b *block, band int, mem []byte, lo, shape []int64, out []uint64) error {
	n := len(c.grid)
	var stride [messages.MaxDims]int64
	c.packed(b, stride[:n])
	off := b.offset
	for d := range lo {
		off += (lo[d] - c.box[2*d]) * stride[d]
	}
	g := c.grid[n-1]
	across := int((b.hi-1)/g - b.lo/g + 1)
	for k, at := 0, b.lo; k < across; k++ {
		end := min(b.hi, (at/g+1)*g)
		shape[n-1] = end - at
		sum, err := tiles.Digest(mem, off+(at-b.lo)*c.elsize, c.elsize, shape[:n], stride[:n])
		if err != nil {
			return err
		}
		out[b.first+band*across+k] = sum
		at = end
	}
	return nil
}
