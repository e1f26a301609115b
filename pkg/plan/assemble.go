package plan

// assembler turns uses into instances of templates, and those into batches.
//
// A template is made once for each pair of how a source is cut and what is wanted of it: a class, the number of what
// is kept of it, and the geometry of its uses. A model of 18,867 tensors has a few dozen such pairs, which is why
// planning takes milliseconds. Nothing in a template depends on where shards and parameters lie.
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

// templateKey finds the template of a source with one use.
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
