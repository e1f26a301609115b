package plan

// Layout is the geometry of one rank's shards, in columns. A Table keeps references to the columns:
// they must not change after Merge.
type Layout struct {
	Rank    int
	Regions []int64 // bytes of each registered region

	// per source
	Names    []string
	DTypes   []DType
	ShapeEnd []uint32 // Shapes[ShapeEnd[i-1]:ShapeEnd[i]] is the global shape of source i
	Shapes   []int64  // elements

	// per shard
	Source []uint32 // index into the per-source columns
	Region []uint32
	Offset []int64 // bytes from the region's base to the box's first element
	Box    []int64 // lo0,hi0,lo1,hi1,… in elements: 2*ndim(source) values per shard, concatenated
	Stride []int64 // nil: every shard lies row-major packed; else ndim(source) values per shard, in elements
}

// Shard is one box of a source as one rank holds it. Its slices belong to the table.
type Shard struct {
	Rank   int
	Index  int // of the shard in the rank's layout
	Region uint32
	Offset int64   // bytes from the region's base to the first element
	Box    []int64 // lo0,hi0,lo1,hi1,… in elements
	Stride []int64 // elements; nil: row-major packed
}

// Table is the merged view of all ranks' layouts. Sources are numbered in order of first mention,
// ranks ascending.
type Table struct {
}

// Merge joins the layouts of all ranks. It refuses boxes outside their shape, bytes outside their region
// and sources on whose dtype or shape two ranks disagree, naming the source and the ranks.
func Merge(layouts []*Layout) (*Table, error) { return &Table{}, nil }

// Len returns the number of sources.
func (t *Table) Len() int { return 0 }

// Find returns the index of a source.
func (t *Table) Find(name string) (int, bool) { return 0, false }

// Name returns the name of source i.
func (t *Table) Name(i int) string { return "" }

// DType returns the element type of source i as served.
func (t *Table) DType(i int) DType { return Invalid }

// Shape returns the global shape of source i, in elements. It belongs to the table.
func (t *Table) Shape(i int) []int64 { return nil }

// Shards returns the shards of source i by rank, then by index.
func (t *Table) Shards(i int) []Shard { return nil }

// Ranks returns the merged ranks, ascending.
func (t *Table) Ranks() []int { return nil }
