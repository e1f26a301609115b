package rdmabench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/landing"
)

// What a receiver does by default: batches of so many bytes, so many of them under way at once.
const (
	batchBytes = 16 << 20
	lanes      = 2
)

// expertBytes is one [2048, 768] matrix in bf16, the down projection of a small expert.
const (
	expertRows  = 2048
	expertCols  = 768
	expertBytes = expertRows * expertCols * 2
)

// verified compares a read whose tiles are digested as they land with the same batches read alone: with the tiles of what
// readers slice by columns and, for whole reads, of what they slice by rows.
func (b *bench) verified(r *rig, s *shape) error {
	err := b.verifiedBy(r, s, "", tiles.Options{})
	if err == nil && s.seg.Runs() == 1 {
		err = b.verifiedBy(r, s, ", row tiles", tiles.Options{Rows: true})
	}
	return err
}

func (b *bench) verifiedBy(r *rig, s *shape, kind string, o tiles.Options) error {
	batches := cutInBatches(&s.seg)
	grid := tiles.ChooseGrid([]int64{expertRows, expertCols}, 2, o)
	with, without, err := byTurns(b.o.Times,
		func() error { return inLanes(r.peers[0], b.dst, batches, grid) },
		func() error { return inLanes(r.peers[0], b.dst, batches, nil) })
	if err != nil {
		return fmt.Errorf("%s, %s, digests: %w", r.name, s.name, err)
	}
	row := Row{
		Transport: r.name, Shape: s.name + kind, Sources: 1, Digests: true, Nbytes: s.seg.Nbytes(), Runs: s.seg.Runs(), Against: withoutDigests,
	}
	row.fill(with, without)
	b.add(row)
	return nil
}

// withoutDigests is what rows with digests are compared with.
const withoutDigests = "no digests"

// cutInBatches cuts a read along its runs, or its one run.
func cutInBatches(s *rdma.Segment) []rdma.Segment {
	n := (s.Nbytes() + batchBytes - 1) / batchBytes
	var out []rdma.Segment
	for i := range n {
		if p := share(s, i, n); p.N[2] > 0 && p.Run > 0 {
			out = append(out, p)
		}
	}
	return out
}

// inLanes reads batches, a few at a time, and digests what they bring as it lands, if there is a grid.
func inLanes(p rdma.Peer, dst *rdma.Memory, batches []rdma.Segment, grid []int64) error {
	var next atomic.Int64
	var once sync.Once
	var first error
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(batches)); i = next.Add(1) - 1 {
				if err := readBatch(p, dst, &batches[i], grid); err != nil {
					once.Do(func() { first = err })
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

func readBatch(p rdma.Peer, dst *rdma.Memory, s *rdma.Segment, grid []int64) error {
	r := landing.New([]rdma.Segment{*s})
	if grid != nil {
		watch(r, dst.Bytes(), s, grid)
	}
	t, err := r.Post(p, dst)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	return t.Wait(ctx)
}

// watch digests what a batch brings, which lies in one piece, a row of tiles at a time, as rows of an expert or of its quarter.
func watch(r *landing.Read, mem []byte, s *rdma.Segment, grid []int64) {
	hi := s.Dst + s.Nbytes()
	row, width := int64(expertCols*2), grid[1]*2
	if s.Run < row {
		row = s.Run / width * width // a slice of whole tiles
	}
	for lo := s.Dst; lo < hi; lo += grid[0] * row {
		rows := min(grid[0], (hi-lo)/row)
		if rows == 0 {
			return
		}
		r.When(lo, lo+rows*row, func() error {
			for at := int64(0); at < row; at += width {
				if _, err := tiles.Digest(mem, lo+at, 2, []int64{rows, grid[1]}, []int64{row, 2}); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
