package plan

// classicRule replaces the cost model by the reference planner's rules for one source.
type classicRule struct {
	whole bool // some copy has more runs than allowed: every shard is pulled whole and scattered locally
}

// classic counts as the reference does, and notes the sources that it pulls whole.
func (a *assembler) classic() error {
	a.whole = map[string]bool{}
	for i := range a.p.dests {
		c, err := CountClassic(a.p.t, &a.p.dests[i], a.p.o.MaxSegmentsPerCopy)
		if err != nil {
			return err
		}
		for _, name := range c.FullPulls {
			a.whole[name] = true
		}
		a.p.classic = append(a.p.classic, *c)
	}
	return nil
}

// whole reports whether the source at hand is pulled whole, shards that nobody needs included.
func (b *builder) whole() bool { return b.classic != nil && b.classic.whole }

// groups chooses how the hits of a part of slot i are read.
func (b *builder) groups(i uint32, part *box, hits []hit) []group {
	s := &b.s.slots[i]
	switch {
	case b.classic == nil:
		return b.group(s, hits)
	case b.classic.whole:
		g := group{hits: hits, hull: *part, shape: spanning}
		p := s.dense(part, b.elsize())
		g.read = p.bridged(0)
		return []group{g}
	}
	out := make([]group, 0, len(hits))
	for k := range hits {
		h := &hits[k]
		g := group{hits: hits[k : k+1 : k+1], alike: true, hull: h.hull}
		if b.casts(h) {
			p := b.exactPattern(s, &g)
			g.read, g.shape = p.bridged(len(p.dims)), exactStaged
		} else {
			g.read = newPattern(h.mem, h.lat.dst, b.elsize(), append([]pdim(nil), h.dims...))
		}
		out = append(out, g)
	}
	return out
}
