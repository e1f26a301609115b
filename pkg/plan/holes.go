package plan

import "slices"

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

// holes names what is missing, once somebody knows that something is: the boxes of a class's source that a walk needs
// and neither a shard nor the base holds. They are boxes as published, not joint ones, since people know those.
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
