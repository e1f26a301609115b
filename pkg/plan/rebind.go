package plan

import "slices"

// Rebind returns the plan for another table of the same sources, such as that of the next version. With the
// same table it is the plan itself: addresses and incarnations are no part of a plan. When some ranks'
// layouts changed, only the sources that they cut otherwise are planned anew; when a source changed its
// type or shape, or the ranks are others, or others are excluded or reached otherwise, everything is. A partial
// plan becomes one that reads everything.
func (p *Plan) Rebind(t *Table) (*Plan, error) {
	if t == p.t {
		return p, nil
	}
	g := p.g
	if p.o.Unchanged != nil { // it speaks of the old table and of one pair of versions
		o := p.o
		o.Unchanged = nil
		return New(t, p.dests, o)
	}
	if !sameRanks(t, p.t) || g.known == nil || p.o.Classic || !p.sameRanksServe(t) {
		return New(t, p.dests, p.o)
	}
	moved := *g
	moved.t, moved.uses, moved.refused, moved.row = t, slices.Clone(g.uses), Refused{}, nil
	for i := range moved.uses {
		u := &moved.uses[i]
		old := u.source
		id, ok := t.index[p.t.names[old]]
		if !ok || t.dtypes[id] != p.t.dtypes[old] || !slices.Equal(t.Shape(int(id)), p.t.Shape(int(old))) {
			return New(t, p.dests, p.o)
		}
		u.source = id
	}
	q := &Plan{t: t, g: &moved, dests: p.dests, o: p.o, fills: p.fills, prices: p.prices, excluded: p.excluded}
	a := newAssembler(q)
	a.keep(p)
	return q.make(a)
}

// sameRanksServe reports whether the options still exclude the same ranks, at the same costs.
func (p *Plan) sameRanksServe(t *Table) bool {
	return slices.Equal(p.excluded, p.o.excluded(t)) && slices.Equal(p.prices, p.o.prices(t))
}

// sameRanks reports whether ranks have the same numbers in both tables, so that holders need no translation.
func sameRanks(a, b *Table) bool {
	return slices.EqualFunc(a.ranks, b.ranks, func(x, y rankShards) bool { return x.rank == y.rank })
}

// keep takes over the templates of sources that are cut in the new table as in the old one. Ranks must
// have the same numbers in both.
func (a *assembler) keep(old *Plan) {
	same := map[[2]uint32]bool{}
	taken := map[uint32]uint32{} // old template: new number
	head, next := a.bySource()
	for i := range old.insts {
		inst := &old.insts[i]
		id := a.p.t.index[old.t.names[inst.source]]
		class := a.p.t.classOf[id]
		if head[id] < 0 || !sameClass(old.t, a.p.t, old.t.classOf[inst.source], class, same) {
			continue
		}
		n, ok := taken[inst.tmpl] // templates of whole sources only: partial plans are not taken over
		if !ok {
			n = uint32(len(a.p.templates))
			a.p.templates = append(a.p.templates, old.templates[inst.tmpl])
			taken[inst.tmpl] = n
		}
		a.remember(cutClass{class: class}, int(head[id]), next, n)
	}
}

// remember files a template under its class and the geometries of the uses from i on.
func (a *assembler) remember(class cutClass, i int, next []int32, tmpl uint32) {
	if next[i] < 0 {
		a.templates[templateKey{class, a.g.uses[i].geom}] = tmpl
		return
	}
	if _, fresh := a.several.id(a.severalRow(class, i, next)); fresh {
		a.ofSeveral = append(a.ofSeveral, tmpl)
	}
}

// sameClass reports whether two classes of two tables list the same boxes on the same ranks. Classes are nodes of a
// tree, so two lists are equal when their last shards are and what comes before them is; known remembers both
// answers, since thousands of sources share their beginnings.
func sameClass(a, b *Table, x, y uint32, known map[[2]uint32]bool) bool {
	if x == 0 || y == 0 {
		return x == y
	}
	key := [2]uint32{x, y}
	if same, ok := known[key]; ok {
		return same
	}
	ca, cb := &a.classes[x], &b.classes[y]
	same := ca.rank == cb.rank && ca.k == cb.k && ca.dtype == cb.dtype && slices.Equal(a.shapes.row(ca.shape), b.shapes.row(cb.shape))
	if same && ca.parent != 0 && cb.parent != 0 {
		ba, sa := geometry(a.boxes.row(ca.box))
		bb, sb := geometry(b.boxes.row(cb.box))
		same = slices.Equal(ba, bb) && slices.Equal(sa, sb)
	}
	same = same && sameClass(a, b, ca.parent, cb.parent, known)
	known[key] = same
	return same
}
