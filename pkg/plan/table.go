package plan

// Table is the merged view of all ranks' layouts. Sources are numbered in order of first mention,
// ranks ascending.
//
// What repeats is kept once: a source has a class, the list of (rank, box) that make it up, and thousands
// of sources share one. Only places (region and offset) are kept per shard, as the layouts gave them.
type Table struct {
	index   map[string]uint32
	names   []string
	dtypes  []DType
	shapeOf []uint32 // row of shapes
	classOf []uint32 // node of classes
	first   []uint32 // index in ranks of the rank that named the source first

	shapes  rows
	boxes   rows // shape, ndim, box, strides: see geometry
	classes []class
	ranks   []rankShards // ascending
}

// class is a list of shards, newest first: one shard, and the class without it. Class 0 ends every list;
// a class whose parent is 0 holds no shard, only shape and dtype.
type class struct {
	parent uint32
	rank   uint32 // index in Table.ranks
	box    uint32 // row of Table.boxes
	k      uint32 // which of the rank's shards of the source
	shape  uint32
	dtype  DType
}

// rankShards is where one rank's shards lie.
type rankShards struct {
	rank    int
	regions []int64
	region  []uint32 // by shard
	offset  []int64  // by shard
	start   []uint32 // shards of source i are order[start[i]:start[i+1]]
	order   []uint32 // nil: shards are in the order of their sources
}

// shard returns the index in the layout of the k-th shard of a source.
func (r *rankShards) shard(source, k uint32) uint32 {
	i := r.start[source] + k
	if r.order != nil {
		i = r.order[i]
	}
	return i
}

// Len returns the number of sources.
func (t *Table) Len() int { return len(t.names) }

// Find returns the index of a source.
func (t *Table) Find(name string) (int, bool) {
	i, ok := t.index[name]
	return int(i), ok
}

// Name returns the name of source i.
func (t *Table) Name(i int) string { return t.names[i] }

// DType returns the element type of source i as served.
func (t *Table) DType(i int) DType { return t.dtypes[i] }

// Shape returns the global shape of source i, in elements. It belongs to the table.
func (t *Table) Shape(i int) []int64 { return t.shapes.row(t.shapeOf[i]) }

// Ranks returns the merged ranks, ascending.
func (t *Table) Ranks() []int {
	out := make([]int, len(t.ranks))
	for i := range t.ranks {
		out[i] = t.ranks[i].rank
	}
	return out
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

// Shards returns the shards of source i by rank, those that hold nothing left out.
func (t *Table) Shards(i int) []Shard {
	var out []Shard
	for _, c := range t.class(t.classOf[i]) {
		r := &t.ranks[c.rank]
		n := r.shard(uint32(i), c.k)
		box, stride := geometry(t.boxes.row(c.box))
		out = append(out, Shard{Rank: r.rank, Index: int(n), Region: r.region[n], Offset: r.offset[n], Box: box, Stride: stride})
	}
	return out
}

// Replicas returns the shards of source i grouped by box: the shards of a group hold the same elements.
// Groups are in order of their first shard.
func (t *Table) Replicas(i int) [][]Shard {
	var groups [][]Shard
	var seen rows
	for _, s := range t.Shards(i) {
		id, fresh := seen.id(s.Box)
		if fresh {
			groups = append(groups, nil)
		}
		groups[id] = append(groups[id], s)
	}
	return groups
}

// class returns the shards of a class, oldest first.
func (t *Table) class(id uint32) []class {
	n := 0
	for c := id; t.classes[c].parent != 0; c = t.classes[c].parent {
		n++
	}
	out := make([]class, n)
	for c := id; n > 0; c = t.classes[c].parent {
		n--
		out[n] = t.classes[c]
	}
	return out
}

// Unread returns the names of the sources that no copy reads, in the order of the table.
func Unread(t *Table, dests []Dest) []string {
	read := make([]bool, t.Len())
	for i := range dests {
		for k := range dests[i].Copies {
			if s, ok := t.index[dests[i].Copies[k].Source]; ok {
				read[s] = true
			}
		}
	}
	var out []string
	for i, r := range read {
		if !r {
			out = append(out, t.names[i])
		}
	}
	return out
}
