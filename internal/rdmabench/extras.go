package rdmabench

import (
	"errors"
	"fmt"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// registration compares one region of all bytes with a region for each expert.
func (b *bench) registration() error {
	for _, name := range b.o.Transports {
		if b.rep.Missing[name] != "" || name == "vmread" || name == "tls" {
			continue
		}
		one, err := b.register(name, 1)
		if err != nil {
			return err
		}
		n := max(2, int(b.o.Nbytes/expertBytes))
		many, err := b.register(name, n)
		if err != nil {
			return err
		}
		b.extra(name+": registration of one region", one, fmt.Sprintf("%d regions of the same bytes", n), many)
	}
	return nil
}

func (b *bench) register(name string, n int) (secs float64, err error) {
	t, err := b.open(name, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	mems := make([]*rdma.Memory, n)
	for i := range mems {
		if mems[i], err = rdma.Alloc(b.o.Nbytes/int64(n), rdma.AllocOptions{}); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, mems[i].Close()) }()
	}
	own, _, err := byTurns(1, func() error {
		var regions []rdma.Region
		for _, m := range mems {
			r, err := t.Register(m)
			if err != nil {
				return err
			}
			regions = append(regions, r)
		}
		for _, r := range regions {
			if err := r.Close(); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	return own.secs, err
}

// A column slice at tensor-parallel size 4 takes a quarter of each expert: four served blocks of a sixteenth.
const (
	sliceRow  = expertCols * 2 / 4  // bytes of a row of the slice
	blockRow  = expertCols * 2 / 16 // bytes of a row of a block
	perSlice  = sliceRow / blockRow
	sliceSize = expertRows * sliceRow
)

// servedLayout reads the slice of as many experts as the memory holds, to where a destination has it, row-major: from plain
// rows, from served blocks as they are, and from blocks by way of staging, as planned for transports that can't scatter.
func (b *bench) servedLayout(r *rig) error {
	n := b.o.Nbytes / 2 / expertBytes // the destination's other half is staging
	if n == 0 {
		return nil
	}
	plain := rdma.Segment{
		Run: sliceRow, N: [3]int64{1, n, expertRows},
		SrcStride: [3]int64{0, expertBytes, 4 * sliceRow}, DstStride: [3]int64{0, sliceSize, sliceRow},
	}
	blocks := rdma.Segment{
		Run: blockRow, N: [3]int64{n, perSlice, expertRows},
		SrcStride: [3]int64{expertBytes, expertRows * blockRow, blockRow}, DstStride: [3]int64{sliceSize, blockRow, sliceRow},
	}
	staged := rdma.Segment{
		Dst: b.o.Nbytes / 2, Run: sliceSize, N: [3]int64{1, 1, n},
		SrcStride: [3]int64{0, 0, expertBytes}, DstStride: [3]int64{0, 0, sliceSize},
	}
	read := func(s *rdma.Segment) func() error {
		return func() error { return readAll(r.peers[:1], b.dst, s) }
	}
	from := fmt.Sprintf("%s: quarter of the columns of %d experts", r.name, n)
	own, other, err := byTurns(b.o.Times, read(&blocks), read(&plain))
	if err != nil {
		return err
	}
	b.extra(from+", served blocks", own.secs, "plain rows", other.secs)
	own, other, err = byTurns(b.o.Times, func() error {
		if err := read(&staged)(); err != nil {
			return err
		}
		return b.scatter(n)
	}, read(&plain))
	if err != nil {
		return err
	}
	b.extra(from+", served blocks by way of staging", own.secs, "plain rows", other.secs)
	return nil
}

// scatter moves blocks of n slices from staging into place.
func (b *bench) scatter(n int64) error {
	mem := b.dst.Bytes()
	return inParallel(n, func(e int64) error {
		return tiles.Copy(mem, e*sliceSize, []int64{blockRow, sliceRow, 1},
			mem, b.o.Nbytes/2+e*sliceSize, []int64{expertRows * blockRow, blockRow, 1},
			[]int64{perSlice, expertRows, blockRow}, 1)
	})
}

func (b *bench) extra(what string, secs float64, against string, other float64) {
	b.rep.Extra = append(b.rep.Extra, Extra{What: what, Seconds: secs, Against: against, Other: other})
}
