package refit

import (
	"bytes"
	"context"
	"fmt"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/landing"
)

// A slice of a shard may end in the middle of a tile, whose digest then says nothing of the part that was read. Such
// edges are verified by proxy: the whole tile is read beside, compared with its digest, and the part is compared with it
// byte for byte. So every byte that was read is verified, at the cost of reading the tiles along the edges of slices twice.

// edge is a tile of which a piece holds a part.
type edge struct {
	shard    *tiles.Shard
	rank     int
	index    int     // of the tile among its shard's
	tlo, thi []int64 // the tile, elements
	lo, hi   []int64 // the part
	part     []byte  // memory in which the part lies
	off      int64   // bytes to the part's first element
	stride   []int64 // bytes, of the part
	elsize   int64
	at       int64 // of the tile in the edge memory
	nbytes   int64 // of the whole tile
}

// edgeBytes is the memory for edges that are read at once, edgeSlots how many there are: tiles.MaxTile fits.
const (
	edgeBytes = tiles.MaxTile
	edgeSlots = 4
)

// edges calls f for each tile that a piece holds in part. Tiles are no larger than edgeBytes: see newTileIndex.
func (c *verifier) edges(p *plan.Piece, mem []byte, f func(edge) error) error {
	sums := c.of(p.Rank, p.Shard)
	if len(sums) == 0 {
		return nil
	}
	row := &c.index[p.Rank][p.Shard]
	elsize := plan.DType(c.version.Ranks[p.Rank].Layout.DTypes[row.Source]).Size()
	return tiles.Edges(row.Grid, row.Box, p.Lo, p.Hi, func(i int, tlo, thi []int64) error {
		e := edge{
			shard: row, rank: p.Rank, index: i, tlo: clone(tlo), thi: clone(thi), lo: clone(tlo), hi: clone(thi),
			part: mem, off: p.Off, stride: clone(p.Stride), elsize: elsize, nbytes: elsize,
		}
		for d := range tlo {
			e.lo[d], e.hi[d] = max(tlo[d], p.Lo[d]), min(thi[d], p.Hi[d])
			e.off += (e.lo[d] - p.Lo[d]) * p.Stride[d]
			e.nbytes *= thi[d] - tlo[d]
		}
		return f(e)
	})
}

func clone(s []int64) []int64 { return append([]int64(nil), s...) }

// verifyEdges reads and compares the tiles that batch i brought in part, as many at a time as edge memory holds.
func (u *pull) verifyEdges(ctx context.Context, p *plan.Plan, i int, staging *rdma.Memory, t *tally) error {
	rank := p.Batch(i).Rank
	var some []edge
	var nbytes int64
	flush := func() error {
		if len(some) == 0 {
			return nil
		}
		if err := u.verifySome(ctx, rank, some); err != nil {
			return err
		}
		for k := range some {
			t.verified += some[k].partBytes()
		}
		u.crossed(nbytes)
		some, nbytes = some[:0], 0
		return nil
	}
	for piece := range p.Pieces(i) {
		err := u.checks.edges(piece, u.memory(piece.Dest, staging).Bytes(), func(e edge) error {
			if nbytes+e.nbytes > edgeBytes {
				if err := flush(); err != nil {
					return err
				}
			}
			e.at = nbytes
			nbytes += e.nbytes
			some = append(some, e)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return flush()
}

// partBytes is the size of the part.
func (e *edge) partBytes() int64 {
	nbytes := e.elsize
	for d := range e.lo {
		nbytes *= e.hi[d] - e.lo[d]
	}
	return nbytes
}

// verifySome handles edges that fit into one piece of edge memory.
func (u *pull) verifySome(ctx context.Context, rank int, edges []edge) error {
	return u.withMemory(ctx, u.r.edges, func(mem *rdma.Memory) error {
		var segments []rdma.Segment
		regions := u.version.Ranks[rank].Table.Regions
		layout := u.version.Ranks[rank].Layout
		for k := range edges {
			segments = edges[k].appendSegments(segments, layout.Region, regions)
		}
		if err := u.transfer(ctx, rank, map[*rdma.Memory]*landing.Read{mem: landing.New(segments)}); err != nil {
			return err
		}
		done := u.verify.Work()
		defer done()
		for k := range edges {
			if err := u.checks.edge(&edges[k], mem.Bytes()); err != nil {
				return err
			}
		}
		return nil
	})
}

// edge compares a tile with its digest, and the part with the tile.
func (c *verifier) edge(e *edge, mem []byte) error {
	shape, packed := e.extents()
	sum, err := tiles.Digest(mem, e.at, e.elsize, shape, packed)
	if err != nil {
		return err
	}
	want := c.version.Ranks[e.rank].Tiles.Digests[e.shard.First+e.index]
	same := sum == want
	if same {
		at := e.at
		for d := range e.lo {
			at += (e.lo[d] - e.tlo[d]) * packed[d]
			shape[d] = e.hi[d] - e.lo[d]
		}
		same, err = equalBoxes(e.part, e.off, e.stride, mem, at, packed, shape, e.elsize)
	}
	if err != nil {
		return err
	}
	if !same {
		return as(CorruptTile, &TileError{
			Rank: e.rank, Source: c.names(e.rank, e.shard.Source), Lo: e.lo, Hi: e.hi, Published: want, Found: sum,
		})
	}
	return nil
}

// extents gives the tile's shape and its strides, in bytes, where it lies packed.
func (e *edge) extents() (shape, packed []int64) {
	n := len(e.tlo)
	shape, packed = make([]int64, n), make([]int64, n)
	step := e.elsize
	for d := n - 1; d >= 0; d-- {
		shape[d] = e.thi[d] - e.tlo[d]
		packed[d] = step
		step *= shape[d]
	}
	return shape, packed
}

// appendSegments reads the tile out of its shard, packed, to its place in the edge memory.
func (e *edge) appendSegments(all []rdma.Segment, region, mapped []uint32) []rdma.Segment {
	n := len(e.tlo)
	stride := make([]int64, n)
	e.shard.ByteStrides(e.elsize, stride)
	src := e.shard.Offset
	for d := range stride {
		src += (e.tlo[d] - e.shard.Box[2*d]) * stride[d]
	}
	r := region[e.shard.Row]
	if mapped != nil {
		r = mapped[r]
	}
	shape, packed := e.extents()
	run := e.elsize
	for n > 0 && (shape[n-1] == 1 || stride[n-1] == run) {
		run *= shape[n-1]
		n--
	}
	return appendStrided(all, rdma.Segment{Region: r, Src: src, Dst: e.at, Run: run, N: [3]int64{1, 1, 1}}, shape[:n], stride[:n], packed[:n])
}

// appendStrided gives a segment outer dimensions; those beyond three become segments of their own.
func appendStrided(all []rdma.Segment, s rdma.Segment, shape, src, dst []int64) []rdma.Segment {
	if len(shape) <= rdma.MaxRank {
		free := rdma.MaxRank - len(shape)
		copy(s.N[free:], shape)
		copy(s.SrcStride[free:], src)
		copy(s.DstStride[free:], dst)
		return append(all, s)
	}
	for range shape[0] {
		all = appendStrided(all, s, shape[1:], src[1:], dst[1:])
		s.Src += src[0]
		s.Dst += dst[0]
	}
	return all
}

// equalBoxes compares two strided boxes of one shape: rows where they lie in one piece, else element by element.
func equalBoxes(a []byte, aoff int64, astride []int64, b []byte, boff int64, bstride, shape []int64, elsize int64) (bool, error) {
	if aoff < 0 || boff < 0 || aoff+elsize > int64(len(a)) || boff+elsize > int64(len(b)) {
		return false, fmt.Errorf("compare boxes: element at %d and %d outside of %d and %d bytes", aoff, boff, len(a), len(b))
	}
	if len(shape) == 0 {
		return bytes.Equal(a[aoff:aoff+elsize], b[boff:boff+elsize]), nil
	}
	if row := shape[0] * elsize; len(shape) == 1 && astride[0] == elsize && bstride[0] == elsize &&
		row <= int64(len(a))-aoff && row <= int64(len(b))-boff {
		return bytes.Equal(a[aoff:aoff+row], b[boff:boff+row]), nil
	}
	for range shape[0] {
		same, err := equalBoxes(a, aoff, astride[1:], b, boff, bstride[1:], shape[1:], elsize)
		if !same || err != nil {
			return false, err
		}
		aoff += astride[0]
		boff += bstride[0]
	}
	return true, nil
}
