package tiles

import (
	"fmt"
	"slices"
)

// Bad is a tile whose bytes differ from their digest.
type Bad struct {
	Tile      int     // index within the shard
	Box       []int64 // in the source's coordinates
	Want, Got uint64
}

// Result is what a verification found.
type Result struct {
	Verified int64 // bytes of tiles that were checked, good or bad
	Tiles    int   // how many
	Bad      []Bad
}

// Verify checks the tiles of a shard, given by its box and its digests, that lie wholly in piece: the part of it that
// was read, where it lies now. Bytes of tiles that piece holds only in part are not verified, and not counted.
func (g *Digester) Verify(piece *Shard, shardBox []int64, digests []uint64) (Result, error) {
	var r Result
	if err := piece.check(); err != nil {
		return r, fmt.Errorf("verify a piece: %w", err)
	}
	t, err := New(piece.Grid, shardBox)
	if err != nil {
		return r, fmt.Errorf("verify a piece: %w", err)
	}
	if t.Len() != len(digests) {
		return r, fmt.Errorf("verify a piece: %d digests for the %d tiles of its shard", len(digests), t.Len())
	}
	if len(piece.Box) != len(shardBox) {
		return r, fmt.Errorf("verify a piece: box %v of a shard %v", piece.Box, shardBox)
	}
	n := len(piece.Stride)
	lo, hi, shape := make([]int64, n), make([]int64, n), make([]int64, n)
	for d := range n {
		lo[d], hi[d] = piece.Box[2*d], piece.Box[2*d+1]
		if lo[d] < shardBox[2*d] || hi[d] > shardBox[2*d+1] {
			return r, fmt.Errorf("verify a piece: box %v isn't in its shard's %v", piece.Box, shardBox)
		}
	}
	for i, tile := range t.Within(lo, hi) {
		got := piece.sumTile(g, tile, shape)
		r.Tiles++
		r.Verified += volume(shape) * piece.Elsize
		if got != digests[i] {
			r.Bad = append(r.Bad, Bad{Tile: i, Box: slices.Clone(tile), Want: digests[i], Got: got})
		}
	}
	return r, nil
}

func volume(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
}
