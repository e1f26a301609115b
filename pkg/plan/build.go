package plan

// New plans the copies of dests out of t. It refuses, with a *Refused that names every fault, what it
// can't do exactly. The plan keeps references to t and dests, which must not change while it is used.
func New(t *Table, dests []Dest, o Options) (*Plan, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	g := newGatherer(t, dests, o)
	for i := range dests {
		g.dest(i)
	}
	if err := g.refused.err(); err != nil {
		return nil, err
	}
	p := &Plan{t: t, g: g, dests: dests, o: o, fills: g.fills, prices: o.prices(t), excluded: o.excluded(t)}
	a := newAssembler(p)
	if o.Classic {
		if err := a.classic(); err != nil {
			return nil, err
		}
	}
	return p.make(a)
}

// make finishes a plan whose copies are gathered: reads, batches, proof, sums, in this order. A refusal by the reads
// (no shard holds something) comes before the proof is asked, which would only say that bytes are missing.
func (p *Plan) make(a *assembler) (*Plan, error) {
	a.instances()
	if err := p.g.refused.err(); err != nil {
		return nil, err
	}
	a.batches()
	if err := p.prove(p.g); err != nil {
		return nil, err
	}
	p.sum()
	return p, nil
}
