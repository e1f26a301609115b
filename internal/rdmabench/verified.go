package rdmabench

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/rdma"
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

// verified compares a read whose tiles are digested as soon as a batch has come with the same batches read alone: with the
// tiles of what readers slice by columns and, for whole reads, of what they slice by rows.
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
		func() error {
			return inLanes(r.peers[0], b.dst, batches, func(x *rdma.Segment) error { return digest(b.dst.Bytes(), x, grid) })
		},
		func() error { return inLanes(r.peers[0], b.dst, batches, func(*rdma.Segment) error { return nil }) })
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

// inLanes reads batches, a few at a time, and does something with each that has come.
func inLanes(p rdma.Peer, dst *rdma.Memory, batches []rdma.Segment, then func(*rdma.Segment) error) error {
	var next atomic.Int64
	var once sync.Once
	var first error
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(batches)); i = next.Add(1) - 1 {
				err := readAll([]rdma.Peer{p}, dst, &batches[i])
				if err == nil {
					err = then(&batches[i])
				}
				if err != nil {
					once.Do(func() { first = err })
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

// digest digests what a batch brought, which lies in one piece, as rows of an expert or of its quarter.
func digest(mem []byte, s *rdma.Segment, grid []int64) error {
	lo, hi := s.Dst, s.Dst+s.Nbytes()
	row, width := int64(expertCols*2), grid[1]*2
	if s.Run < row {
		row = s.Run / width * width // a slice of whole tiles
	}
	for ; lo < hi; lo += grid[0] * row {
		rows := min(grid[0], (hi-lo)/row)
		for at := int64(0); at < row && rows > 0; at += width {
			if _, err := tiles.Digest(mem, lo+at, 2, []int64{rows, grid[1]}, []int64{row, 2}); err != nil {
				return err
			}
		}
	}
	return nil
}
