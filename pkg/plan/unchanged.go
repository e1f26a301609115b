package plan

import (
	"fmt"
	"iter"
	"slices"
)

// Unchanged tells which elements of a source are the same in the version that the arenas hold already, the
// base: it yields boxes, as lo and hi in elements, in any order; they may overlap and may be reused between
// yields. What it doesn't yield counts as changed, so forgetting a box costs bytes and never correctness.
// nil: everything changed. It is asked once for each source that some copy reads, by its index in the table.
//
// Equal tile digests of two versions mean equal bytes; the tiles of a shard are boxes of its source.
type Unchanged func(source int) iter.Seq2[[]int64, []int64]

// cut splits a source into what changed, which is read, and what is kept from the base. Both lists are
// disjoint boxes in published coordinates; together they are the whole source.
type cut struct{ changed, kept []box }

// maxCutCells bounds the grid that a source's unchanged boxes make. Beyond it the whole source is read: boxes
// that fine are no tiles.
const maxCutCells = 1 << 22

// cutter numbers the cuts of sources: many experts change, or don't, in the same way.
type cutter struct {
	unchanged Unchanged
	cuts      []cut // by number - 1; number 0 is a source that is read whole
	seen      rows
	flat      []int64 // of the source at hand: lo0,hi0,… of each box
	row       []int64
}

// of returns the number of a source's cut.
func (c *cutter) of(source int, shape []int64) (uint32, error) {
	if c.unchanged == nil {
		return 0, nil
	}
	n, whole, err := c.collect(source, shape)
	if err != nil || n == 0 {
		return 0, err
	}
	var made cut
	switch grid, ok := newCells(shape, c.flat); {
	case whole:
		made.kept = []box{wholeBox(shape)}
	case !ok:
		return 0, nil
	default:
		grid.mark(c.flat)
		made = cut{changed: grid.boxes(false), kept: grid.boxes(true)}
	}
	c.row = c.row[:0]
	for i := range made.kept {
		c.row = append(c.row, int64(made.kept[i].n))
		for d := range made.kept[i].n {
			c.row = append(c.row, made.kept[i].lo[d], made.kept[i].hi[d])
		}
	}
	c.row = append(c.row, shape...) // what is left of the source is read
	id, fresh := c.seen.id(c.row)
	if fresh {
		c.cuts = append(c.cuts, made)
	}
	return id + 1, nil
}

// collect asks for the source's boxes, and refuses one that does not lie in the shape: whoever made it means another
// source, and what it says is unchanged may not be. n counts those that hold anything; whole says that one is all.
func (c *cutter) collect(source int, shape []int64) (n int, whole bool, err error) {
	c.flat = c.flat[:0]
	seq := c.unchanged(source)
	if seq == nil {
		return 0, false, nil
	}
	for lo, hi := range seq {
		if len(lo) != len(shape) || len(hi) != len(shape) {
			return 0, false, fmt.Errorf("%w: unchanged box [%v, %v) of shape %v", ErrLayout, lo, hi, shape)
		}
		empty, all := false, true
		for d, size := range shape {
			if lo[d] < 0 || hi[d] < lo[d] || hi[d] > size {
				return 0, false, fmt.Errorf("%w: unchanged box [%v, %v) of shape %v", ErrLayout, lo, hi, shape)
			}
			empty = empty || lo[d] == hi[d]
			all = all && lo[d] == 0 && hi[d] == size
		}
		if empty {
			continue
		}
		if n++; all {
			return n, true, nil
		}
		for d := range shape {
			c.flat = append(c.flat, lo[d], hi[d])
		}
	}
	return n, false, nil
}

// wholeBox is the box of a whole source.
func wholeBox(shape []int64) box {
	b := box{n: len(shape)}
	copy(b.hi[:], shape)
	return b
}

// cellGrid is a source cut at every boundary of its unchanged boxes.
type cellGrid struct {
	at   [maxSourceDims][]int64 // boundaries of each dimension, ascending, from 0 to its size
	n    int                    // dimensions
	same []bool                 // row-major
}

// newCells makes the grid; false when it would be too fine.
func newCells(shape, flat []int64) (*cellGrid, bool) {
	c := &cellGrid{n: len(shape)}
	total := int64(1)
	for d, size := range shape {
		at := []int64{0, size}
		for k := 2 * d; k < len(flat); k += 2 * len(shape) {
			at = append(at, flat[k], flat[k+1])
		}
		slices.Sort(at)
		c.at[d] = slices.Compact(at)
		if total *= int64(len(c.at[d]) - 1); total > maxCutCells {
			return nil, false
		}
	}
	c.same = make([]bool, total)
	return c, true
}

// mark notes the cells of the unchanged boxes.
func (c *cellGrid) mark(flat []int64) {
	for ; len(flat) > 0; flat = flat[2*c.n:] {
		var b box
		b.n = c.n
		for d := range c.n {
			lo, _ := slices.BinarySearch(c.at[d], flat[2*d])
			hi, _ := slices.BinarySearch(c.at[d], flat[2*d+1])
			b.lo[d], b.hi[d] = int64(lo), int64(hi)
		}
		c.markFrom(&b, 0, 0)
	}
}

// markFrom marks a box of cells; base is the place of its first d coordinates.
func (c *cellGrid) markFrom(b *box, d int, base int64) {
	width := int64(len(c.at[d]) - 1)
	if d == c.n-1 {
		row := c.same[base*width:][b.lo[d]:b.hi[d]]
		for i := range row {
			row[i] = true
		}
		return
	}
	for i := b.lo[d]; i < b.hi[d]; i++ {
		c.markFrom(b, d+1, base*width+i)
	}
}

// boxes returns the cells with the value as few boxes: runs along the last dimension, then equal neighbours
// along each dimension before it. That is not the least number there can be, but tiles that changed at random rarely
// leave much to join, and those that changed by layers, experts or rows join whole.
func (c *cellGrid) boxes(same bool) []box {
	list := c.runs(same)
	for d := c.n - 2; d >= 0; d-- {
		list = stack(list, d)
	}
	for i := range list {
		for d := range c.n {
			list[i].lo[d], list[i].hi[d] = c.at[d][list[i].lo[d]], c.at[d][list[i].hi[d]]
		}
	}
	return list
}

// runs lists the runs of cells with the value along the last dimension, in row-major order.
func (c *cellGrid) runs(same bool) []box {
	var out []box
	width := len(c.at[c.n-1]) - 1
	for from := 0; from < len(c.same); from += width {
		row := c.same[from : from+width]
		for lo := 0; lo < width; lo++ {
			if row[lo] != same {
				continue
			}
			hi := lo + 1
			for hi < width && row[hi] == same {
				hi++
			}
			b := box{n: c.n}
			b.lo[c.n-1], b.hi[c.n-1] = int64(lo), int64(hi)
			for d, rest := c.n-2, int64(from/width); d >= 0; d-- {
				n := int64(len(c.at[d]) - 1)
				b.lo[d], b.hi[d] = rest%n, rest%n+1
				rest /= n
			}
			out = append(out, b)
			lo = hi
		}
	}
	return out
}

// stack joins boxes that are alike but for dimension d, along which they follow each other. The list is in
// row-major order, and stays so.
func stack(list []box, d int) []box {
	ends := make(map[box]int, len(list)) // a box from 0 to its end along d: where it is in the list
	out := list[:0]
	for _, b := range list {
		key := b
		key.lo[d], key.hi[d] = 0, b.lo[d]
		i, ok := ends[key]
		if ok {
			delete(ends, key)
			out[i].hi[d] = b.hi[d]
		} else {
			i = len(out)
			out = append(out, b)
		}
		key.hi[d] = b.hi[d]
		ends[key] = i
	}
	return out
}

// keep notes what the uses need of a box that the base holds: it counts as covered, and is not read.
func (b *builder) keep(part *box) {
	var lats []lattice
	for u := range b.parts {
		for p := range b.parts[u] {
			lats = b.parts[u][p].cut(part, lats)
		}
	}
	if len(lats) == 0 {
		return
	}
	base := newSlot(part.flat(), nil, b.elsize()) // stands for the memory that nothing is read from
	g := group{alike: len(lats) == 1, hull: *part}
	for k := range lats {
		l := &lats[k]
		h, _ := newHit(l, &base, nil)
		g.hits = append(g.hits, h)
		size := b.uses[l.use].to.Size()
		dims := make([]pdim, l.n)
		for j := range dims {
			dims[j] = pdim{n: l.size[j], src: l.dstStride[j], dst: l.dstStride[j]}
		}
		b.held[l.use] += l.nelems()
		b.t.keptBytes += l.nelems() * size
		b.t.kept = append(b.t.kept, templateKept{l.use, newPattern(l.dst, l.dst, size, dims)})
	}
	b.t.saved += b.needed(&g)
}

// Kept is a region of an arena that a plan leaves as the base has it. Whoever stages into other memory than
// the base lies in copies these regions; whoever stages in place has nothing to do.
type Kept struct {
	Dest          int
	Off           int64   // bytes from the arena's start
	Run           int64   // bytes
	Shape, Stride []int64 // of the runs; bytes, outermost first
}

// Kept yields the regions that are kept from the base, for every destination. Together with what segments,
// scatters and fills write they cover every parameter exactly once, and New has proven that.
func (p *Plan) Kept() iter.Seq[Kept] {
	return func(yield func(Kept) bool) {
		for i := range p.insts {
			inst := &p.insts[i]
			t := p.templates[inst.tmpl]
			for k := range t.kept {
				at := &t.kept[k]
				b := &p.bases[inst.base+uint32(at.use)]
				out := Kept{Dest: int(b.dest), Off: b.off + at.dst, Run: at.run}
				for _, d := range at.dims {
					out.Shape, out.Stride = append(out.Shape, d.n), append(out.Stride, d.dst)
				}
				if !yield(out) {
					return
				}
			}
		}
	}
}

// Do copies the region from the base's arena to another arena of the same layout. Nothing is written when
// it leaves either.
func (k *Kept) Do(dst, base []byte) error {
	end := k.Off + k.Run
	p := pattern{src: k.Off, dst: k.Off, run: k.Run}
	for d, n := range k.Shape {
		end += (n - 1) * k.Stride[d]
		p.dims = append(p.dims, pdim{n: n, src: k.Stride[d], dst: k.Stride[d]})
	}
	if k.Off < 0 || end > int64(min(len(dst), len(base))) {
		return fmt.Errorf("plan: keep: bytes [%d, %d) of arenas of %d and %d", k.Off, end, len(dst), len(base))
	}
	p.copyRuns(dst, base)
	return nil
}

// Partial returns the plan of a version of which only a part changed since the one that the arenas hold: of
// the same table and destinations, without what u names. Sources that changed whole are not planned anew.
// The plan is for one pair of versions: Rebind of it gives a plan that reads everything.
func (p *Plan) Partial(u Unchanged) (*Plan, error) {
	o := p.o
	o.Unchanged = u
	if p.g.known == nil || p.o.Classic || p.o.Unchanged != nil || !p.sameRanksServe(p.t) {
		return New(p.t, p.dests, o)
	}
	g := *p.g
	g.o, g.refused, g.row = o, Refused{}, nil // the plan stays as it is, whoever uses it meanwhile
	q := &Plan{t: p.t, g: &g, dests: p.dests, o: o, fills: p.fills, prices: p.prices, excluded: p.excluded}
	a := newAssembler(q)
	a.keep(p)
	return q.make(a)
}
