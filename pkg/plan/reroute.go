package plan

import (
	"fmt"

	"github.com/drydock-rl/drydock/pkg/plan/cover"
)

// Reroute plans the bytes of one batch anew from ranks that avoid does not name. The new plan writes
// exactly the destination bytes of the batch, and has no fills; the error, a *Refused, names the boxes
// that no other rank holds.
func (p *Plan) Reroute(batch int, avoid func(rank int) bool) (*Plan, error) {
	o := p.o
	o.Unchanged = nil // the batch brings only what changed
	o.Exclude = func(rank int) bool { return avoid(rank) || p.o.Exclude != nil && p.o.Exclude(rank) }
	g := &gatherer{t: p.t, dests: p.dests, o: o}
	q := &Plan{t: p.t, g: g, dests: p.dests, o: o, prices: p.prices}
	a := newAssembler(q)
	made := map[rec]uint32{} // template and read of the old plan: template of the new one
	b := &p.batches[batch]
	for _, rc := range p.recs[b.from:b.to] {
		old := p.insts[rc.inst]
		key := rec{old.tmpl, rc.read}
		inst := instance{source: old.source, base: uint32(len(q.bases))}
		uses, bases := p.again(old, rc.read)
		id, ok := made[key]
		if !ok {
			t, err := a.b.build(a.sharding(cutClass{class: p.t.classOf[old.source]}), uses)
			if err != nil {
				return nil, fmt.Errorf("plan: reroute of batch %d: %w", batch, err)
			}
			id = uint32(len(q.templates))
			q.templates = append(q.templates, t)
			made[key] = id
		}
		if q.templates[id].short > 0 {
			p.unheld(batch, old.source, uses, bases, &o, &g.refused)
			continue
		}
		inst.tmpl = id
		q.bases = append(q.bases, bases...)
		q.insts = append(q.insts, inst)
	}
	if err := g.refused.err(); err != nil {
		return nil, err
	}
	a.batches()
	if err := q.proveAgainst(p, batch); err != nil {
		return nil, err
	}
	q.sum()
	return q, nil
}

// again turns one read of an instance back into uses.
func (p *Plan) again(inst instance, n uint32) (uses []use, bases []base) {
	t := p.templates[inst.tmpl]
	r := &t.reads[n]
	for row := t.walks[r.walks:r.walksEnd]; len(row) > 0; {
		u := row[0]
		w, read := walkFrom(row[1:])
		row = row[1+read:]
		uses = append(uses, use{walks: []walk{w}, from: t.fromTo[u][0], to: t.fromTo[u][1]})
		bases = append(bases, p.bases[inst.base+uint32(u)])
	}
	return uses, bases
}

// unheld names what has no replica.
func (p *Plan) unheld(batch int, source uint32, uses []use, bases []base, o *Options, refused *Refused) {
	for i := range uses {
		d := &p.dests[bases[i].dest]
		k := int(bases[i].copy)
		for _, h := range p.t.holes(p.t.classOf[source], o.Exclude, nil, uses[i].walks) {
			refused.add(&Fault{
				Err: ErrUncovered, Rank: d.Rank, Param: d.Params[d.Copies[k].Param].Name, Source: p.t.names[source],
				Copy: k, Box: h, Ranks: []int{p.batches[batch].Rank}, Detail: "no other rank may serve it",
			})
		}
	}
}

// proveAgainst checks that the plan writes what one batch of another plan writes.
func (p *Plan) proveAgainst(q *Plan, batch int) error {
	for i := range p.dests {
		spaces, _ := coverSpaces(&p.dests[i])
		want := func(yield func(int, *cover.Region) bool) {
			var r cover.Region
			q.batchRegions(batch, i, &r, yield)
		}
		if v := cover.Equal(spaces, want, p.regions(i), 2*p.writes()); len(v.Wrong) > 0 || v.Stray >= 0 || v.Beyond >= 0 {
			return fmt.Errorf("plan: reroute of batch %d: %w", batch, ErrProof)
		}
	}
	return nil
}
