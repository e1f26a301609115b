package served

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Repack turns memory that is laid out plainly into served memory where it is, on all cores. Each worker needs a scratch
// buffer as large as the largest shard that is cut. An error leaves the memory undefined.
func (s *Snapshot) Repack(mem []byte) error {
	if int64(len(mem)) < s.Nbytes() {
		return fmt.Errorf("repack the memory of rank %d: %d bytes, the layout needs %d", s.plain.Rank, len(mem), s.Nbytes())
	}
	return s.parallel(len(s.shards), func(i int) error { return s.shards[i].shuffle(mem) })
}

// scratches hold one shard each.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// together is about how many bytes of rows are moved to all blocks before the next rows: so that they stay in the cache.
const together = 128 << 10

// shuffle moves a shard's rows to its blocks by way of a copy of the shard.
func (c *cutShard) shuffle(mem []byte) error {
	p := scratches.Get().(*[]byte)
	defer scratches.Put(p)
	n := c.nbytes()
	if int64(cap(*p)) < n {
		*p = make([]byte, n)
	}
	src := (*p)[:n]
	copy(src, mem[c.offset:c.offset+n])
	rows := max(1, together/(n/(c.box[1]-c.box[0])))
	for lo := c.box[0]; lo < c.box[1]; lo += rows {
		for i := range c.blocks {
			if err := c.copyBlock(&c.blocks[i], mem, src, lo, min(lo+rows, c.box[1])); err != nil {
				return fmt.Errorf("move the shard of source %d to its blocks: %w", c.source, err)
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

// strides gives the byte strides of a packed box of the shard's extents but for its columns.
func (c *cutShard) strides(columns int64, stride []int64) {
	step := c.elsize
	for d := len(stride) - 1; d >= 0; d-- {
		stride[d] = step
		if d == len(stride)-1 {
			step *= columns
		} else {
			step *= c.box[2*d+1] - c.box[2*d]
		}
	}
}

// copyBlock copies the rows [lo, hi) of the first dimension from a copy of the shard to a block, over all of its columns.
func (c *cutShard) copyBlock(b *block, mem, src []byte, lo, hi int64) error {
	n := len(c.box) / 2
	var from, to, extent [messages.MaxDims]int64
	first, last := c.box[2*n-2], c.box[2*n-1]
	c.strides(last-first, from[:n])
	c.strides(b.hi-b.lo, to[:n])
	for d := range n {
		extent[d] = c.box[2*d+1] - c.box[2*d]
	}
	extent[0], extent[n-1] = hi-lo, b.hi-b.lo
	row := lo - c.box[0]
	return tiles.Copy(mem, b.offset+row*to[0], to[:n], src, row*from[0]+(b.lo-first)*c.elsize, from[:n], extent[:n], c.elsize)
}
