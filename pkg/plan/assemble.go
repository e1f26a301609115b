package plan

import (
	"cmp"
	"slices"
)

// assembler turns uses into instances of templates, and those into batches.
type assembler struct {
	p *Plan
	g *gatherer
	b builder

	shardings map[cutClass]*sharding
	templates map[templateKey]uint32 // of sources with one use
	several   rows                   // of sources with several: class, cut and geometries
	ofSeveral []uint32

	cutter cutter
	load   []int64         // wire bytes per rank
	whole  map[string]bool // Options.Classic: sources that are pulled whole
}

// cutClass is how a source is cut by ranks, and in what changed and what didn't.
type cutClass struct{ class, cut uint32 }

type templateKey struct {
	cutClass
	geom uint32
}

// newAssembler prepares for the plan's table and options; nothing is planned yet.
func newAssembler(p *Plan) *assembler {
	n := len(p.t.ranks)
	return &assembler{
		p: p, g: p.g,
		b:         builder{prices: p.prices, batch: p.o.BatchBytes, stage: max(stagingAlign, p.o.StagingBytes&^(stagingAlign-1))},
		shardings: map[cutClass]*sharding{},
		templates: map[templateKey]uint32{},
		cutter:    cutter{unchanged: p.o.Unchanged},
		load:      make([]int64, n),
	}
}

// instances plans source by source, in order of first use.
func (a *assembler) instances() {
	uses := a.g.uses
	head, next := a.bySource()
	a.p.insts = make([]instance, 0, len(uses))
	a.p.bases = make([]base, 0, len(uses))
	for i := range uses {
		if int(head[uses[i].source]) != i {
			continue
		}
		inst := instance{source: uses[i].source, base: uint32(len(a.p.bases))}
		for k := int32(i); k >= 0; k = next[k] {
			u := &uses[k]
			a.p.bases = append(a.p.bases, base{u.dest, u.copy, u.off})
		}
		c, ok := a.cutOf(i)
		if !ok {
			continue
		}
		id, ok := a.template(c, i, next)
		if !ok {
			continue
		}
		inst.tmpl = id
		if short := a.p.templates[id].short; short > 0 {
			a.uncovered(c, i, next, short-1)
			continue
		}
		a.p.insts = append(a.p.insts, inst)
	}
}

// bySource links the uses of each source: head is the first one's index, next the one after; -1 ends.
func (a *assembler) bySource() (head, next []int32) {
	uses := a.g.uses
	head, next = make([]int32, a.p.t.Len()), make([]int32, len(uses))
	tail := make([]int32, a.p.t.Len())
	for i := range head {
		head[i] = -1
	}
	for i := range uses {
		s := uses[i].source
		next[i] = -1
		if head[s] < 0 {
			head[s] = int32(i)
		} else {
			next[tail[s]] = int32(i)
		}
		tail[s] = int32(i)
	}
	return head, next
}

// cutOf asks what of the source whose first use is i has changed. False means that a fault was noted.
func (a *assembler) cutOf(i int) (cutClass, bool) {
	u := &a.g.uses[i]
	n, err := a.cutter.of(int(u.source), a.p.t.Shape(int(u.source)))
	if err != nil {
		a.g.refused.add(&Fault{Err: err, Rank: -1, Source: a.p.t.names[u.source], Copy: -1})
	}
	return cutClass{a.p.t.classOf[u.source], n}, err == nil
}

// template finds or builds the template of the source whose first use is i.
func (a *assembler) template(class cutClass, i int, next []int32) (uint32, bool) {
	u := &a.g.uses[i]
	if next[i] < 0 {
		key := templateKey{class, u.geom}
		id, ok := a.templates[key]
		if !ok {
			if id, ok = a.build(class, i, next); !ok {
				return 0, false
			}
			a.templates[key] = id
		}
		return id, true
	}
	n, fresh := a.several.id(a.severalRow(class, i, next))
	if fresh {
		id, ok := a.build(class, i, next)
		if !ok {
			id = ^uint32(0)
		}
		a.ofSeveral = append(a.ofSeveral, id)
	}
	id := a.ofSeveral[n]
	return id, id != ^uint32(0)
}

// severalRow is what sources with several uses are told apart by: class, cut, and the geometry of each use.
func (a *assembler) severalRow(class cutClass, i int, next []int32) []int64 {
	a.g.row = append(a.g.row[:0], int64(class.class), int64(class.cut))
	for k := int32(i); k >= 0; k = next[k] {
		a.g.row = append(a.g.row, int64(a.g.uses[k].geom))
	}
	return a.g.row
}

// sharding works a class out once: many templates are made of the same class.
func (a *assembler) sharding(c cutClass) *sharding {
	s, ok := a.shardings[c]
	if ok {
		return s
	}
	if c.cut == 0 {
		s = a.p.t.sharding(c.class, a.p.o.Exclude)
	} else {
		s = a.p.t.cutSharding(c.class, a.p.o.Exclude, &a.cutter.cuts[c.cut-1])
	}
	a.shardings[c] = s
	return s
}

// build makes the template of a class for the uses of one source, which stand for those of all its likes.
// False means that a fault was noted.
func (a *assembler) build(class cutClass, i int, next []int32) (uint32, bool) {
	s := a.sharding(class)
	var uses []use
	for k := int32(i); k >= 0; k = next[k] {
		uses = append(uses, a.g.geoms[a.g.uses[k].geom])
	}
	if a.p.o.Classic {
		a.b.classic = &classicRule{whole: a.whole[a.p.t.names[a.g.uses[i].source]]}
	}
	t, err := a.b.build(s, uses)
	if err != nil {
		u := &a.g.uses[i]
		d := &a.p.dests[u.dest]
		a.g.fault(int(u.dest), d.Params[d.Copies[u.copy].Param].Name, a.p.t.names[u.source], int(u.copy), err, "")
		return 0, false
	}
	a.p.templates = append(a.p.templates, t)
	return uint32(len(a.p.templates) - 1), true
}

// assign gives each read to a rank that holds it: among several, to a preferred one, then to the one with
// the least to do. It runs twice, with the same answers: to count, and to write every list into its place.
func (a *assembler) assign(to func(list uint32, rc rec)) {
	clear(a.load)
	for i := range a.p.insts {
		t := a.p.templates[a.p.insts[i].tmpl]
		for k := range t.reads {
			r := &t.reads[k]
			from := t.holders[r.slot]
			rank := from[0].rank
			if len(from) > 1 {
				rank = a.lightest(from)
			}
			a.load[rank] += r.wire
			list := 2 * rank
			if r.staging > 0 {
				list++
			}
			to(list, rec{uint32(i), uint32(k)})
		}
	}
}

// lightest starts looking at a place that differs between destinations, so that receivers that plan the
// same at the same time don't all choose the same rank.
func (a *assembler) lightest(from []holder) uint32 {
	start := 0
	if len(a.p.dests) > 0 {
		start = max(0, a.p.dests[0].Rank) % len(from)
	}
	best, preferred := from[start].rank, false
	for i := range from {
		rank := from[(start+i)%len(from)].rank
		pref := a.p.o.Prefer != nil && a.p.o.Prefer(a.p.t.ranks[rank].rank)
		if pref != preferred {
			if pref {
				best, preferred = rank, true
			}
			continue
		}
		if a.load[rank] < a.load[best] {
			best = rank
		}
	}
	return best
}

// batches cuts each rank's reads into batches, direct ones before staged ones, and orders them so that
// every rank has work from the first to the last.
func (a *assembler) batches() {
	p := a.p
	end := make([]uint32, 2*len(a.load))
	a.assign(func(list uint32, _ rec) { end[list]++ })
	sum := uint32(0)
	for i, n := range end {
		end[i] = sum
		sum += n
	}
	p.recs = make([]rec, sum)
	a.assign(func(list uint32, rc rec) {
		p.recs[end[list]] = rc
		end[list]++
	})
	type ranked struct {
		batchRange
		at float64 // of the rank's bytes, the share that is done when the batch is half done
	}
	var all []ranked
	at := uint32(0)
	for rank := range a.load {
		done := 0.0
		for _, stop := range end[2*rank : 2*rank+2] {
			for at < stop {
				b := a.batch(uint32(rank), at, stop)
				at = b.to
				all = append(all, ranked{b, (done + float64(b.Wire)/2) / max(1, float64(a.load[rank]))})
				done += float64(b.Wire)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y ranked) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.rank, y.rank)) })
	p.batches = make([]batchRange, len(all))
	for i := range all {
		p.batches[i] = all[i].batchRange
	}
}

// batch takes as many of the reads [at, stop) as a batch may hold: at least one.
func (a *assembler) batch(rank, at, stop uint32) batchRange {
	p := a.p
	b := batchRange{from: at, to: at, rank: rank, Batch: Batch{Rank: p.t.ranks[rank].rank}}
	for _, rc := range p.recs[at:stop] {
		r := &p.templates[p.insts[rc.inst].tmpl].reads[rc.read]
		staging := alignStaging(r.staging)
		if b.to > at && (b.Wire+r.wire > p.o.BatchBytes || b.Staging+staging > p.o.StagingBytes) {
			break
		}
		b.to++
		b.Wire += r.wire
		b.Staging += staging
		b.Segments += int(r.segsEnd - r.segs)
		b.Runs += r.runs
	}
	return b
}

// uncovered names the boxes of a source that no shard holds and some use needs.
func (a *assembler) uncovered(c cutClass, i int, next []int32, use int) {
	for range use {
		i = int(next[i])
	}
	u := &a.g.uses[i]
	d := &a.p.dests[u.dest]
	param := d.Params[d.Copies[u.copy].Param].Name
	var kept []box
	if c.cut > 0 {
		kept = a.cutter.cuts[c.cut-1].kept
	}
	holes := a.p.t.holes(c.class, a.p.o.Exclude, kept, a.g.geoms[u.geom].walks)
	for _, h := range holes {
		a.g.refused.add(&Fault{Err: ErrUncovered, Rank: d.Rank, Param: param, Source: a.p.t.names[u.source], Copy: int(u.copy), Box: h})
	}
}

// holes returns the boxes of a class's source that a walk needs and neither a shard nor the base holds, in
// published coordinates.
func (t *Table) holes(id uint32, exclude func(int) bool, kept []box, walks []walk) [][]int64 {
	c := t.classes[id]
	list := t.class(id)
	if exclude != nil {
		list = slices.DeleteFunc(list, func(c class) bool { return exclude(t.ranks[c.rank].rank) })
	}
	shape := t.shapes.row(c.shape)
	if len(shape) == 0 {
		return [][]int64{{}}
	}
	var lats []lattice
	need := box{}
	for i := range walks {
		l, _ := newResolver(shape).resolve(&walks[i])
		for k := range l {
			h := l[k].hull(len(shape))
			if len(lats) == 0 && k == 0 {
				need = h
			}
			need.join(&h)
		}
		lats = append(lats, l...)
	}
	rest := []box{need} // what is left of it, once all that is held is taken out
	for _, s := range t.holders(list, c.dtype.Size()) {
		if rest = without(rest, &s.box); len(rest) > maxSlots {
			return [][]int64{need.flat()} // somewhere in it
		}
	}
	for i := range kept {
		rest = without(rest, &kept[i])
	}
	var out [][]int64
	for i := range rest {
		if hull, ok := hullWithin(lats, &rest[i]); ok {
			out = append(out, hull.flat())
		}
	}
	return out
}

// hullWithin returns the smallest box around what the lattices hold of a box; false if that is nothing.
func hullWithin(lats []lattice, b *box) (hull box, found bool) {
	var parts []lattice
	for k := range lats {
		parts = lats[k].cut(b, parts[:0])
		for i := range parts {
			h := parts[i].hull(b.n)
			if !found {
				hull, found = h, true
			}
			hull.join(&h)
		}
	}
	return hull, found
}

// hull returns the smallest box that holds the lattice.
func (l *lattice) hull(ndim int) box {
	b := box{n: ndim}
	for d := range ndim {
		lo, last := l.bounds(d)
		b.lo[d], b.hi[d] = lo, last+1
	}
	return b
}
