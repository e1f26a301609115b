// Package shardlayout cuts the tensors of a checkpoint for trainer ranks, as real trainers hold them.
package shardlayout

// Kind names a way of cutting.
type Kind string

// The kinds.
const (
	FSDP Kind = "fsdp" // ceil-chunks of dimension 0, the last ones short or empty
	TP   Kind = "tp"   // columns and rows by names
	HSDP Kind = "hsdp" // two replicas of fsdp over half the ranks
)

// ParseKind takes the names above.
func ParseKind(s string) (Kind, error) { panic("not yet") }

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
	Shards []Shard // in source order, zero-byte shards included
	Nbytes int64   // of the rank's one region
}

// Align is the alignment of shards in a region, bytes.
const Align = 64

// Cut gives each of the ranks its shards.
func Cut(sources []Source, kind Kind, ranks int) ([]Rank, error) { panic("not yet") }
