package messages

// Layout is the geometry of one rank's shards, in columns. It says nothing about
// addresses or values, so it stays the same between versions and across restarts,
// and travels once, by digest. A decoded layout may share its source columns with
// the layouts of other ranks: treat every slice as read-only.
type Layout struct {
	Rank    int     // the rank that holds the shards
	Regions []int64 // nbytes of each region

	// Per source.
	Names    []string
	DTypes   []DType
	ShapeEnd []uint32 // Shapes[ShapeEnd[i-1]:ShapeEnd[i]] is the global shape of source i
	Shapes   []int64  // elements per dimension, concatenated
	Grid     []int64  // tile extents in elements, parallel to Shapes; nil: no tile digests

	// Per shard.
	Source []uint32 // index into the per-source columns
	Region []uint32 // index into Regions
	Offset []int64  // bytes from the region's base to the box's first element
	Box    []int64  // lo0,hi0,lo1,hi1,… concatenated: 2*ndim(source) values per shard, elements
	Stride []int64  // nil: every shard lies row-major packed; else ndim(source) values per shard, elements

	Groups []Group // sources that are installed together or share their values
}

// Shape is the global shape of source i, in elements.
func (l *Layout) Shape(i int) []int64 {
	lo := uint32(0)
	if i > 0 {
		lo = l.ShapeEnd[i-1]
	}
	return l.Shapes[lo:l.ShapeEnd[i]:l.ShapeEnd[i]]
}

// NDim is the number of dimensions of source i.
func (l *Layout) NDim(i int) int { return len(l.Shape(i)) }

// GroupKind says what ties the sources of a group together.
type GroupKind uint8

// The kinds of groups.
const (
	GroupAlias  GroupKind = 1 // the names share one storage, e.g. tied embeddings
	GroupAtomic GroupKind = 2 // the sources change together, e.g. a weight and its scale
)

// Group ties sources of one model together. Names may belong to sources of other
// ranks: a group is checked against the union of all ranks' sources.
type Group struct {
	Kind    GroupKind
	Members []string // source names, the first of an alias group holds the bytes
}
