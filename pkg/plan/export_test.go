package plan

import "slices"

// Prove checks a finished plan once more.
func (p *Plan) Prove() error { return p.prove(p.g) }

// Spoilers change one number of a finished plan, as a defect of the planner would, and return false when the
// plan has nothing of that kind. n picks the place.
var Spoilers = map[string]func(p *Plan, n int) bool{
	"a read is missing": func(p *Plan, _ int) bool {
		b := &p.batches[len(p.batches)-1]
		b.to--
		return true
	},
	"a read is there twice": func(p *Plan, n int) bool {
		i := n % (len(p.recs) + 1)
		if i+1 >= len(p.recs) {
			return false
		}
		p.recs[i] = p.recs[i+1]
		return true
	},
	"a copy lies elsewhere": func(p *Plan, n int) bool {
		p.bases[n%len(p.bases)].off++
		return true
	},
	"a segment lands elsewhere": func(p *Plan, n int) bool {
		s := p.anySegment(n)
		if s == nil {
			return false
		}
		s.dst++
		return true
	},
	"a segment is too long": func(p *Plan, n int) bool {
		s := p.anySegment(n)
		if s == nil {
			return false
		}
		s.run++
		return true
	},
	"a segment lacks a row": func(p *Plan, n int) bool {
		s := p.anySegment(n)
		if s == nil || s.n[2] < 2 {
			return false
		}
		s.n[2]--
		return true
	},
	"a segment strides otherwise": func(p *Plan, n int) bool {
		s := p.anySegment(n)
		if s == nil || s.n[2] < 2 {
			return false
		}
		s.dstStr[2]++
		return true
	},
	"a scatter lands elsewhere": func(p *Plan, n int) bool {
		t := p.anyTemplate(n)
		if len(t.scatters) == 0 {
			return false
		}
		t.scatters[n%len(t.scatters)].dst++
		return true
	},
	"a scatter is missing": func(p *Plan, n int) bool {
		t := p.anyTemplate(n)
		if len(t.scatters) == 0 {
			return false
		}
		t.scatters = t.scatters[1:]
		return true
	},
	"what is kept is written too": func(p *Plan, n int) bool {
		t := p.anyTemplate(n)
		if len(t.kept) == 0 || len(t.segs) == 0 {
			return false
		}
		t.kept = append(slices.Clone(t.kept), t.kept[0])
		return true
	},
	"what is kept is forgotten": func(p *Plan, n int) bool {
		t := p.anyTemplate(n)
		if len(t.kept) == 0 {
			return false
		}
		t.kept = t.kept[1:]
		return true
	},
	"a source is missing": func(p *Plan, _ int) bool {
		last := p.insts[len(p.insts)-1]
		if len(p.templates[last.tmpl].reads) > 0 {
			return false // the batches would hold reads of nothing
		}
		p.insts = p.insts[:len(p.insts)-1]
		return true
	},
}

func (p *Plan) anyTemplate(n int) *template { return p.templates[p.insts[n%len(p.insts)].tmpl] }

// anySegment returns a segment that lands in an arena.
func (p *Plan) anySegment(n int) *templateSeg {
	t := p.anyTemplate(n)
	for i := range t.segs {
		if s := &t.segs[(i+n)%len(t.segs)]; s.use != toStaging {
			return s
		}
	}
	return nil
}
