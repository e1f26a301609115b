package plan

// sum fills the plan's statistics in. What belongs to sources is added up over instances, each of which has what its
// template has; what belongs to the wire over batches, so that the sums are those of what is really read.
func (p *Plan) sum() {
	g := p.g
	s := Stats{Batches: len(p.batches), Copies: len(g.uses)}
	for i := range p.insts {
		t := p.templates[p.insts[i].tmpl]
		s.Needed += t.needed
		s.Staged += t.staged
		s.ExactRuns += t.exactRuns
		s.Saved += t.saved
		s.Kept += t.keptBytes
		if len(t.reads) > 0 {
			s.Sources++
		}
	}
	ranks := map[int]bool{}
	for i := range p.batches {
		b := &p.batches[i]
		s.Wire += b.Wire
		s.Segments += int64(b.Segments)
		s.Runs += b.Runs
		s.StagingPeak = max(s.StagingPeak, b.Staging)
		ranks[b.Rank] = true
	}
	s.Ranks = len(ranks)
	for i := range g.uses {
		u := &g.geoms[g.uses[i].geom]
		s.Written += u.nelems() * u.to.Size()
	}
	for i := range p.fills {
		n := int64(len(p.fills[i].Pattern))
		for _, k := range p.fills[i].Shape {
			n *= k
		}
		s.Written += n
	}
	s.Written -= s.Kept
	s.PlanBytes = int64(cap(p.recs))*8 + int64(cap(p.insts))*12 + int64(cap(p.bases))*16 + int64(cap(p.batches))*64
	p.stats = s
}
