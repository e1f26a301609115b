package rdmabench

import (
	"context"
	"errors"
	"fmt"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// extras measures what isn't a transport's speed: digests, registration, and the served layout.
func (b *bench) extras(ctx context.Context) error {
	for _, f := range []func(context.Context) error{b.digests, b.registration, b.servedLayout} {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

// digests compares the digest of all bytes, in tiles of a [2048, 768] expert in bf16, with a plain copy of them.
func (b *bench) digests(ctx context.Context) error {
	table := experts(len(b.dst.Bytes()))
	secs, err := fastest(b.o.Times, func() error {
		_, err := table.DigestAll(b.dst.Bytes())
		return errors.Join(err, ctx.Err())
	})
	if err != nil {
		return err
	}
	b.extra("digest of all tiles", secs, "copy of the same bytes", b.base[copyName+"whole"].Seconds)
	return nil
}

// expertBytes is one [2048, 768] matrix in bf16.
const expertBytes = 2048 * 768 * 2

func experts(nbytes int) *tiles.Table {
	t := &tiles.Table{ElSize: []int64{2}, ShapeEnd: []uint32{2}, Grid: tiles.ChooseGrid([]int64{2048, 768}, 2, tiles.Options{})}
	for off := 0; off+expertBytes <= nbytes; off += expertBytes {
		t.Source = append(t.Source, 0)
		t.Offset = append(t.Offset, int64(off))
		t.Box = append(t.Box, 0, 2048, 0, 768)
	}
	return t
}

// registration compares one region of all bytes with a region for each expert.
func (b *bench) registration(context.Context) error {
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
	return fastest(1, func() error {
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
	})
}

// servedLayout compares a column slice at tensor-parallel size 4 of [2048, 768] matrices that are served in blocks of a
// sixteenth of their columns with the same slice of plain rows.
func (b *bench) servedLayout(context.Context) error {
	n := b.o.Nbytes / expertBytes
	const cols, rows, block = 768 * 2, 2048, 768 * 2 / 16 // bytes of a row, rows, bytes of a block's row
	plain := rdma.Segment{Run: cols / 4, N: [3]int64{1, n, rows}, SrcStride: [3]int64{0, expertBytes, cols}, DstStride: [3]int64{0, rows * cols / 4, cols / 4}}
	blocks := rdma.Segment{Run: rows * block * 4, N: [3]int64{1, 1, n}, SrcStride: [3]int64{0, 0, expertBytes}, DstStride: [3]int64{0, 0, rows * cols / 4}}
	for _, name := range b.o.Transports {
		if b.rep.Missing[name] != "" {
			continue
		}
		a, err := b.readOnce(name, &blocks)
		if err != nil {
			return err
		}
		p, err := b.readOnce(name, &plain)
		if err != nil {
			return err
		}
		b.extra(fmt.Sprintf("%s: quarter of the columns of %d experts from served blocks", name, n), a, "from plain rows", p)
	}
	return nil
}

func (b *bench) readOnce(name string, s *rdma.Segment) (secs float64, err error) {
	var ts [2]rdma.Transport
	for i := range ts {
		if ts[i], err = b.open(name, i == 0); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, ts[i].Close()) }()
	}
	remote, err := serve(ts[0], b.src)
	if err != nil {
		return 0, err
	}
	if _, err := ts[1].Register(b.dst); err != nil {
		return 0, err
	}
	peers, err := connect(ts[1], remote, 1)
	if err != nil {
		return 0, err
	}
	return fastest(b.o.Times, func() error { return readAll(peers, b.dst, s) })
}

func (b *bench) extra(what string, secs float64, against string, other float64) {
	b.rep.Extra = append(b.rep.Extra, Extra{What: what, Seconds: secs, Against: against, Other: other})
}
