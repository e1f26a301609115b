package tiles

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Table is the geometry of one rank's shards in columns, as layouts have it. Units are elements unless told otherwise.
type Table struct {
	ElSize   []int64  // bytes of one element, per source
	ShapeEnd []uint32 // the dimensions of source i are [ShapeEnd[i-1], ShapeEnd[i]) of Grid
	Grid     []int64

	Source []uint32 // per shard
	Offset []int64  // bytes to the box's first element
	Box    []int64  // lo0,hi0,… per shard, concatenated
	Stride []int64  // nil: row-major packed; else per shard, concatenated
}

// grid is the grid of source i.
func (t *Table) grid(i uint32) []int64 {
	lo := uint32(0)
	if i > 0 {
		lo = t.ShapeEnd[i-1]
	}
	return t.Grid[lo:t.ShapeEnd[i]]
}

// Shard is one row of a table.
type Shard struct {
	Row    int // its place in the table
	Source uint32
	Grid   []int64
	Box    []int64
	Offset int64
	Stride []int64 // nil: packed
	First  int     // index of its first digest
}

// Shards lists the rows with the place of their digests, and the number of all digests.
func (t *Table) Shards() ([]Shard, int) {
	rows := make([]Shard, len(t.Source))
	at, first := 0, 0
	for k, src := range t.Source {
		g := t.grid(src)
		r := &rows[k]
		*r = Shard{Row: k, Source: src, Grid: g, Box: t.Box[2*at : 2*(at+len(g))], Offset: t.Offset[k], First: first}
		if t.Stride != nil {
			r.Stride = t.Stride[at : at+len(g)]
		}
		at += len(g)
		first += Count(g, r.Box)
	}
	return rows, first
}

// chunk is how many shards a worker takes at a time.
const chunk = 16

// DigestAll digests all tiles of all shards, which lie in mem, on all cores: shards in order, tiles in row-major order.
func (t *Table) DigestAll(mem []byte) ([]uint64, error) {
	rows, total := t.Shards()
	out := make([]uint64, total)
	var next atomic.Int64
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for lo := int(next.Add(chunk)) - chunk; lo < len(rows); lo = int(next.Add(chunk)) - chunk {
				if err := t.digestRows(rows[lo:min(lo+chunk, len(rows))], mem, out); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

func (t *Table) digestRows(rows []Shard, mem []byte, out []uint64) error {
	for i := range rows {
		r := &rows[i]
		if err := r.digest(mem, t.ElSize[r.Source], out[r.First:]); err != nil {
			return fmt.Errorf("digest a shard of source %d, box %v: %w", r.Source, r.Box, err)
		}
	}
	return nil
}

// digest writes the digests of the shard's tiles to out.
func (r *Shard) digest(mem []byte, elsize int64, out []uint64) error {
	n := len(r.Grid)
	var lo, hi, stride, shape [maxDims]int64
	for d := range n {
		lo[d], hi[d] = r.Box[2*d], r.Box[2*d+1]
	}
	r.ByteStrides(elsize, stride[:n])
	return Within(r.Grid, r.Box, lo[:n], hi[:n], func(i int, tlo, thi []int64) error {
		off := r.Offset
		for d := range n {
			off += (tlo[d] - lo[d]) * stride[d]
			shape[d] = thi[d] - tlo[d]
		}
		sum, err := Digest(mem, off, elsize, shape[:n], stride[:n])
		out[i] = sum
		return err
	})
}

// ByteStrides writes the shard's strides in bytes, one for each dimension.
func (r *Shard) ByteStrides(elsize int64, stride []int64) {
	step := elsize
	for d := len(stride) - 1; d >= 0; d-- {
		stride[d] = step
		step *= r.Box[2*d+1] - r.Box[2*d]
		if r.Stride != nil {
			stride[d] = r.Stride[d] * elsize
		}
	}
}
