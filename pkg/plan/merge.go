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

// group lists the layout's shards by source. Ranks whose lists are equal share one.
func (m *Merger) group(l *Layout, r *rankShards) {
	n := len(m.t.names)
	m.starts = slices.Grow(m.starts[:0], n+1)[:n+1]
	start := m.starts
	clear(start)
	sorted, last := true, uint32(0)
	for _, s := range l.Source {
		id := m.local[s]
		sorted = sorted && id >= last
		last = id
		start[id+1]++
	}
	for i := range n {
		start[i+1] += start[i]
	}
	if !sorted {
		r.order = make([]uint32, len(l.Source))
		next := slices.Clone(start)
		for k, s := range l.Source {
			id := m.local[s]
			r.order[next[id]] = uint32(k)
			next[id]++
		}
	}
	if k := len(m.t.ranks); k > 0 && slices.Equal(m.t.ranks[k-1].start, start) {
		r.start = m.t.ranks[k-1].start
		return
	}
	r.start = slices.Clone(start)
}

// shards walks the layout's shards and moves each source on to the class that they make.
func (m *Merger) shards(l *Layout, rank uint32) error {
	t := m.t
	clear(m.cache[:])
	at, prev, k := 0, ^uint32(0), uint32(0)
	for i, s := range l.Source {
		ndim := int(l.ShapeEnd[s])
		if s > 0 {
			ndim -= int(l.ShapeEnd[s-1])
		}
		id := m.local[s]
		if id == prev {
			k++
		} else {
			k = 0
			if t.ranks[rank].order != nil {
				k = m.seenBefore(l, i)
			}
		}
		prev = id
		var stride []int64
		if l.Stride != nil {
			stride = l.Stride[at : at+ndim]
		}
		box, empty, err := m.box(l.Box[2*at:2*(at+ndim)], stride, t.shapeOf[id])
		if err != nil {
			return m.shardFault(l, i, err)
		}
		at += ndim
		if empty {
			continue
		}
		class := m.follow(step{t.classOf[id], rank, box, k})
		t.classOf[id] = class
		if err := m.inRegion(l, i, m.spans[class]); err != nil {
			return m.shardFault(l, i, err)
		}
	}
	return nil
}

// seenBefore counts the shards of the same source before shard i, for layouts whose shards are not grouped.
func (m *Merger) seenBefore(l *Layout, i int) uint32 {
	r := &m.t.ranks[len(m.t.ranks)-1]
	id := m.local[l.Source[i]]
	list := r.order[r.start[id]:r.start[id+1]]
	k, _ := slices.BinarySearch(list, uint32(i))
	return uint32(k)
}

// follow returns the class that a step leads to. Neighbouring sources mostly take the same step.
func (m *Merger) follow(s step) uint32 {
	h := (s.class*0x9E3779B1 ^ s.box*0x85EBCA6B ^ s.k) >> (32 - stepCacheBits)
	if c := &m.cache[h]; c.to != 0 && c.from == s {
		return c.to
	}
	to, ok := m.step[s]
	if !ok {
		to = m.newClass(s.class, s.rank, s.box, s.k, m.span(s))
		m.step[s] = to
	}
	m.cache[h] = cached{s, to}
	return to
}

// span returns the bytes from a shard's first element to the end of its last.
func (m *Merger) span(s step) int64 {
	box, stride := geometry(m.boxes.row(s.box))
	size := m.t.classes[s.class].dtype.Size()
	if stride == nil {
		n := size
		for d := 0; d < len(box); d += 2 {
			n *= box[d+1] - box[d]
		}
		return n
	}
	last := int64(0)
	for d, st := range stride {
		reach, ok := mul(box[2*d+1]-box[2*d]-1, st)
		if last, ok = add(last, reach, ok); !ok {
			return -1
		}
	}
	n, ok := mul(last, size)
	if n, ok = add(n, size, ok); !ok {
		return -1
	}
	return n
}

// inRegion checks one shard's bytes. The sum of offset and span is never formed: it might overflow.
func (m *Merger) inRegion(l *Layout, i int, span int64) error {
	if int(l.Region[i]) >= len(l.Regions) {
		return fmt.Errorf("%w: region %d of %d", ErrRegion, l.Region[i], len(l.Regions))
	}
	size, off := l.Regions[l.Region[i]], l.Offset[i]
	if span < 0 || off < 0 || size < 0 || off > size-span {
		return fmt.Errorf("%w: %d bytes at %d of region %d of %d bytes", ErrRegion, span, off, l.Region[i], size)
	}
	return nil
}

// shardFault names a shard that is wrong. It looks for the box anew: this happens once.
func (m *Merger) shardFault(l *Layout, i int, err error) error {
	at := 0
	for _, s := range l.Source[:i] {
		at += len(l.shape(int(s)))
	}
	ndim := len(l.shape(int(l.Source[i])))
	return &Fault{
		Err: err, Rank: -1, Copy: -1, Source: l.Names[l.Source[i]], Ranks: []int{l.Rank},
		Box: slices.Clone(l.Box[2*at : 2*(at+ndim)]), Detail: fmt.Sprintf("shard %d", i),
	}
}

// seenBox remembers the number of a packed box: ranks list the same few over and over.
type seenBox struct {
	set, empty bool
	shape, id  uint32
	n          int
	flat       [2 * maxSourceDims]int64
}

// box numbers a box with its strides.
func (m *Merger) box(box, stride []int64, shape uint32) (id uint32, empty bool, err error) {
	if stride != nil || len(box) == 0 {
		return m.newBox(box, stride, shape)
	}
	c := &m.seen[(uint64(box[0])*0x9E3779B97F4A7C15>>32^uint64(shape))%uint64(len(m.seen))]
	if c.set && c.shape == shape && slices.Equal(c.flat[:c.n], box) {
		return c.id, c.empty, nil
	}
	if id, empty, err = m.newBox(box, nil, shape); err == nil {
		*c = seenBox{set: true, empty: empty, shape: shape, id: id}
		c.n = copy(c.flat[:], box)
	}
	return id, empty, err
}

// newBox looks the number up. Strides that say row-major packed are dropped, so that replicas are seen as
// equal whoever wrote them down.
func (m *Merger) newBox(box, stride []int64, shape uint32) (id uint32, empty bool, err error) {
	m.scratch = append(m.scratch[:0], int64(shape), int64(len(box)/2))
	m.scratch = append(m.scratch, box...)
	if stride != nil && !packed(box, stride) {
		for d, st := range stride {
			if box[2*d+1]-box[2*d] <= 1 {
				st = 0 // whatever was written there, nothing moves along it
			}
			m.scratch = append(m.scratch, st)
		}
	}
	id, fresh := m.boxes.id(m.scratch)
	if fresh {
		if err := inside(box, stride, m.shapes.row(shape)); err != nil {
			return 0, false, err
		}
	}
	return id, hollow(box), nil
}

// geometry takes a row of Merger.box apart.
func geometry(row []int64) (box, stride []int64) {
	n := 2 + 2*row[1]
	if int(n) < len(row) {
		stride = row[n:]
	}
	return row[2:n:n], stride
}

// packed reports whether strides say what a row-major packed box would have. Dimensions of one element may
// have any stride, and a box without elements too.
func packed(box, stride []int64) bool {
	want := int64(1)
	for d := len(stride) - 1; d >= 0; d-- {
		n := box[2*d+1] - box[2*d]
		if n == 0 {
			return true
		}
		if n > 1 && stride[d] != want {
			return false
		}
		want *= n
	}
	return true
}

// hollow reports whether a box, lo0,hi0,lo1,hi1,…, holds nothing.
func hollow(box []int64) bool {
	for d := 0; d < len(box); d += 2 {
		if box[d] == box[d+1] {
			return true
		}
	}
	return false
}

// inside checks a box and its strides against the shape. Strides of 0 are refused where they would show one
// element several times: whoever reads such a shard would read its bytes several times. Along dimensions of one
// element, and in boxes of none, nothing moves: strides there may be anything, as in torch.
func inside(box, stride, shape []int64) error {
	for d, n := range shape {
		if lo, hi := box[2*d], box[2*d+1]; lo < 0 || hi < lo || hi > n {
			return fmt.Errorf("%w: [%d, %d) of dimension %d of size %d", ErrLayout, lo, hi, d, n)
		}
	}
	for d, st := range stride {
		if n := box[2*d+1] - box[2*d]; n > 1 && st <= 0 && !hollow(box) {
			return fmt.Errorf("%w: stride %d of dimension %d of %d elements", ErrLayout, st, d, n)
		}
	}
	return nil
}
