package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// Merge joins the layouts of all ranks. It refuses boxes outside their shape, bytes outside their region
// and sources on whose dtype or shape two ranks disagree, naming the source and the ranks.
func Merge(layouts []*Layout) (*Table, error) {
	order := slices.Clone(layouts)
	slices.SortStableFunc(order, func(a, b *Layout) int { return cmp.Compare(a.Rank, b.Rank) })
	m := NewMerger()
	for _, l := range order {
		if err := m.Add(l); err != nil {
			return nil, err
		}
	}
	return m.Table(), nil
}

// Merger builds a table from one layout after the other, ranks ascending. It lets go of a layout's boxes
// at once: tables of hundreds of ranks never lie in memory whole.
type Merger struct {
	t       *Table
	shapes  rows
	boxes   rows
	step    map[step]uint32
	roots   map[root]uint32
	spans   []int64 // per class: bytes from the last shard's first element to its end; parallel to t.classes
	local   []uint32
	prev    *Layout
	scratch []int64
	starts  []uint32 // scratch
	cache   [1 << stepCacheBits]cached
	seen    [64]seenBox
}

// A class is a node of a tree of sharding patterns: what it adds to its parent is one shard. Sources
// that are cut alike end in the same node.
//
// Ranks come one after the other, so a source's shards come in one order, and the path from the root is that list.
// The step from node to node is a look-up of four small numbers, of which neighbouring sources mostly take the
// same; the list itself is compared with nothing.
type (
	root struct {
		shape uint32
		dtype DType
	}
	step struct {
		class, rank, box, k uint32
	}
	cached struct {
		from step
		to   uint32
	}
)

// stepCacheBits says how many steps are remembered beside the map, as a power of two: the dozens of classes that a
// model has at one time fit into the fastest memory.
const stepCacheBits = 8

// NewMerger returns an empty merger.
func NewMerger() *Merger {
	return &Merger{
		t:     &Table{index: map[string]uint32{}, classes: []class{{}}},
		step:  map[step]uint32{},
		roots: map[root]uint32{},
		spans: []int64{0},
	}
}

// Table returns what was merged. The merger must not be used afterwards.
func (m *Merger) Table() *Table {
	m.t.shapes, m.t.boxes = m.shapes, m.boxes
	return m.t
}

// Add merges the layout of one rank, which must be larger than those before. After an error the merger
// is of no further use.
func (m *Merger) Add(l *Layout) error {
	if n := len(m.t.ranks); n > 0 && m.t.ranks[n-1].rank >= l.Rank {
		return fmt.Errorf("plan: rank %d: %w: it follows rank %d", l.Rank, ErrLayout, m.t.ranks[n-1].rank)
	}
	if err := l.validate(); err != nil {
		return fmt.Errorf("plan: rank %d: %w", l.Rank, err)
	}
	if err := m.sources(l); err != nil {
		return err
	}
	r := rankShards{rank: l.Rank, regions: l.Regions, region: l.Region, offset: l.Offset}
	m.group(l, &r)
	m.t.ranks = append(m.t.ranks, r)
	if err := m.shards(l, uint32(len(m.t.ranks)-1)); err != nil {
		return err
	}
	m.prev = l
	return nil
}

// sources maps the layout's sources to the table's. Ranks that list the same names cost one comparison each.
func (m *Merger) sources(l *Layout) error {
	known := 0
	if m.prev != nil {
		known = min(len(m.prev.Names), len(l.Names))
		if m.sameSources(l) {
			return nil
		}
	}
	if len(m.t.names) == 0 {
		m.t.index = make(map[string]uint32, len(l.Names))
	}
	local := m.local[:0]
	for i, name := range l.Names {
		var id uint32
		if i < known && m.prev.Names[i] == name {
			id = m.local[i]
		} else if found, ok := m.t.index[name]; ok {
			id = found
		} else {
			id = m.newSource(l, i)
		}
		if err := m.agree(l, i, id); err != nil {
			return err
		}
		local = append(local, id)
	}
	m.local = local
	return nil
}

// sameSources reports whether the layout lists exactly what the one before listed.
func (m *Merger) sameSources(l *Layout) bool {
	p := m.prev
	if len(p.Names) != len(l.Names) || !slices.Equal(p.DTypes, l.DTypes) || !slices.Equal(p.ShapeEnd, l.ShapeEnd) || !slices.Equal(p.Shapes, l.Shapes) {
		return false
	}
	return len(l.Names) == 0 || &p.Names[0] == &l.Names[0] || slices.Equal(p.Names, l.Names)
}

// newSource gives a name its number. It starts in the class of its shape and type, which holds no shard.
func (m *Merger) newSource(l *Layout, i int) uint32 {
	t := m.t
	id := uint32(len(t.names))
	shape, _ := m.shapes.id(l.shape(i))
	t.names = append(t.names, l.Names[i])
	t.dtypes = append(t.dtypes, l.DTypes[i])
	t.shapeOf = append(t.shapeOf, shape)
	t.first = append(t.first, uint32(len(t.ranks)))
	at := root{shape, l.DTypes[i]}
	class, ok := m.roots[at]
	if !ok {
		class = m.newClass(0, 0, 0, 0, 0)
		t.classes[class].shape, t.classes[class].dtype = shape, l.DTypes[i]
		m.roots[at] = class
	}
	t.classOf = append(t.classOf, class)
	t.index[l.Names[i]] = id
	return id
}

// newClass adds a node to the tree of classes. span is checked against the region of every shard that gets there.
func (m *Merger) newClass(parent, rank, box, k uint32, span int64) uint32 {
	t := m.t
	t.classes = append(t.classes, class{
		parent: parent, rank: rank, box: box, k: k,
		shape: t.classes[parent].shape, dtype: t.classes[parent].dtype,
	})
	m.spans = append(m.spans, span)
	return uint32(len(t.classes) - 1)
}

// agree refuses a rank that gives a source another dtype or shape than the ranks before it.
func (m *Merger) agree(l *Layout, i int, id uint32) error {
	t := m.t
	shape := m.shapes.row(t.shapeOf[id])
	if t.dtypes[id] == l.DTypes[i] && slices.Equal(shape, l.shape(i)) {
		if int(t.first[id]) == len(t.ranks) { // just made: check it once
			return m.sane(l, i)
		}
		return nil
	}
	return &Fault{
		Err: ErrConflict, Rank: -1, Copy: -1, Source: l.Names[i], Ranks: []int{t.ranks[t.first[id]].rank, l.Rank},
		Detail: fmt.Sprintf("%s%v against %s%v", t.dtypes[id], shape, l.DTypes[i], l.shape(i)),
	}
}

// sane checks a new source by itself.
func (m *Merger) sane(l *Layout, i int) error {
	fault := func(err error, detail string) error {
		return &Fault{Err: err, Rank: -1, Copy: -1, Source: l.Names[i], Ranks: []int{l.Rank}, Detail: detail}
	}
	size := l.DTypes[i].Size()
	if size == 0 {
		return fault(ErrLayout, fmt.Sprintf("elements of %s are not whole bytes: publish them as U8", l.DTypes[i]))
	}
	nbytes := size
	for _, n := range l.shape(i) {
		if n < 0 {
			return fault(ErrLayout, fmt.Sprintf("negative size in shape %v", l.shape(i)))
		}
		var ok bool
		if nbytes, ok = mul(nbytes, max(n, 1)); !ok {
			return fault(ErrRegion, fmt.Sprintf("the bytes of shape %v overflow", l.shape(i)))
		}
	}
	return nil
}
