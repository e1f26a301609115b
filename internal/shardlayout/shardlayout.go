// Package shardlayout cuts the tensors of a checkpoint for trainer ranks, the way real trainers hold them.
//
// It knows geometry only: names and shapes come in, boxes and places come out. It opens nothing, allocates no memory for
// shards and moves no byte. A box is [lo, hi) in each dimension, in elements of the whole tensor; a place is an offset in
// a rank's one region, where the box lies row-major and packed.
//
// The law: over all ranks every element of every source is in at least one box; boxes of one source are equal or disjoint.
// Equal ones are replicas. Chunks are those of torch.chunk: ceil(n / ranks) each, the last ones short
// or empty. That is what FSDP2 does on dimension 0 and what DTensor does for tensor parallelism; Megatron would refuse a
// dimension that doesn't divide, here it gives uneven chunks.
package shardlayout

import (
	"fmt"
	"math"
)

// Kind names a way of cutting.
type Kind string

// The kinds.
const (
	FSDP Kind = "fsdp" // chunks of dimension 0; 0-d tensors on every rank
	TP   Kind = "tp"   // chunks of rows or columns by the module's name; all others on every rank
	HSDP Kind = "hsdp" // two replicas of fsdp, each over half the ranks
)

// Limits of Cut.
const (
	MaxRanks = 4096
	replicas = 2 // of hsdp
)

// ParseKind takes the names above.
func ParseKind(s string) (Kind, error) {
	switch kind := Kind(s); kind {
	case FSDP, TP, HSDP:
		return kind, nil
	}
	return "", fmt.Errorf("unknown layout %q, expected fsdp, tp or hsdp", s)
}

// Source is a tensor to cut.
type Source struct {
	Name  string
	Shape []int64 // elements
	Size  int64   // bytes an element
}

// Shard is the box of one source that a rank holds, packed row-major in the rank's region.
type Shard struct {
	Source int     // position in the sources
	Lo, Hi []int64 // [lo, hi) per dimension, elements; empty for 0-d
	Offset int64   // bytes from the region's start, a multiple of Align; 0 for zero-byte shards, which aren't placed
	Nbytes int64
}

// Rank is what one rank holds.
type Rank struct {
	Shards []Shard // one for each source, in their order; an empty chunk is the box [n, n)
	Nbytes int64   // of the rank's one region
}

// Align is the alignment of shards in a region, bytes.
const Align = 64

// Cut gives each of the ranks its shards.
func Cut(sources []Source, kind Kind, ranks int) ([]Rank, error) {
	if _, err := ParseKind(string(kind)); err != nil {
		return nil, err
	}
	if ranks < 1 || ranks > MaxRanks {
		return nil, fmt.Errorf("cut layout %s: found %d trainer ranks, expected 1 to %d", kind, ranks, MaxRanks)
	}
	chunks := ranks
	if kind == HSDP {
		if ranks%replicas != 0 {
			return nil, fmt.Errorf("cut layout hsdp: found %d trainer ranks, expected an even number (two replicas of fsdp)", ranks)
		}
		chunks = ranks / replicas
	}
	out := make([]Rank, ranks)
	for r := range out {
		var err error
		// Replicas are whole rows of the mesh, as torch numbers a (replicate, shard) mesh: rank = replica·chunks + chunk.
		if out[r], err = cutRank(sources, kind, int64(r%chunks), int64(chunks)); err != nil {
			return nil, fmt.Errorf("cut layout %s for rank %d of %d: %w", kind, r, ranks, err)
		}
	}
	return out, nil
}

// cutRank takes chunk number chunk of each source and places them one after the other.
func cutRank(sources []Source, kind Kind, chunk, chunks int64) (Rank, error) {
	rank := Rank{Shards: make([]Shard, len(sources))}
	for i, source := range sources {
		shard := Shard{Source: i, Lo: make([]int64, len(source.Shape)), Hi: append([]int64{}, source.Shape...)}
		if dim := cutDim(source, kind); dim >= 0 {
			shard.Lo[dim], shard.Hi[dim] = Chunk(source.Shape[dim], chunk, chunks)
		}
		if err := rank.place(&shard, source); err != nil {
			return Rank{}, err
		}
		rank.Shards[i] = shard
	}
	return rank, nil
}

// cutDim is the dimension along which a source is cut, -1 for none.
func cutDim(source Source, kind Kind) int {
	if kind == TP {
		return tensorParallelDim(source)
	}
	if len(source.Shape) == 0 {
		return -1
	}
	return 0
}

// Chunk is the interval [lo, hi) of n elements that torch.chunk gives to one of so many chunks; [n, n) when nothing is left.
func Chunk(n, chunk, chunks int64) (lo, hi int64) {
	each := n / chunks
	if n%chunks != 0 {
		each++
	}
	return min(chunk*each, n), min((chunk+1)*each, n)
}

// place puts the shard at the region's end.
func (r *Rank) place(s *Shard, source Source) error {
	s.Nbytes = source.Size
	for d := range s.Lo {
		extent := s.Hi[d] - s.Lo[d]
		if extent < 0 || extent > 0 && s.Nbytes > math.MaxInt64/extent {
			return fmt.Errorf("place source %s: shape %v of %d-byte elements has no size in 63 bits", source.Name, source.Shape, source.Size)
		}
		s.Nbytes *= extent
	}
	if s.Nbytes == 0 {
		return nil
	}
	s.Offset = (r.Nbytes + Align - 1) &^ (Align - 1)
	if s.Offset < 0 || s.Nbytes > math.MaxInt64-s.Offset {
		return fmt.Errorf("place source %s: the region would need more than 2^63 bytes", source.Name)
	}
	r.Nbytes = s.Offset + s.Nbytes
	return nil
}
