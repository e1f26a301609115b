package plan

import (
	"fmt"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan/cover"
)

// The certificate follows the form of a plan, so that it costs less than the plan did:
//
//  1. The reads of all batches are the reads of all instances, each exactly once (eachReadOnce).
//  2. What an instance's segments and scatters write, and what it keeps, is what its copies declare, each byte
//     exactly once (provenUses). An instance is its template moved to the places of its copies, so this is
//     checked once for each template and declared geometry.
//  3. The declared regions of all copies, at those places, and the fills cover the parameters exactly once
//     (proveDest).
//
// It looks at finished segments, at the copies as they were given, and at nothing that lies between.

// eachReadOnce checks that the batches hold every read of every instance once, and nothing else.
func (p *Plan) eachReadOnce() error {
	first := make([]uint32, len(p.insts)+1) // number of an instance's first read
	for i := range p.insts {
		first[i+1] = first[i] + uint32(len(p.templates[p.insts[i].tmpl].reads))
	}
	seen := make([]bool, first[len(p.insts)])
	n := 0
	for i := range p.batches {
		b := &p.batches[i]
		for _, r := range p.recs[b.from:b.to] {
			at := first[r.inst] + r.read
			if at >= first[r.inst+1] || seen[at] {
				return fmt.Errorf("plan: %w: read %d of source %q is not in exactly one batch", ErrProof, r.read, p.t.names[p.insts[r.inst].source])
			}
			seen[at] = true
			n++
		}
	}
	if n != len(seen) {
		return fmt.Errorf("plan: %w: %d reads, %d of them in batches", ErrProof, len(seen), n)
	}
	return nil
}

// provenUses checks that every instance writes, or keeps, what its copies declare.
func (p *Plan) provenUses() error {
	proven := make([][]uint32, len(p.templates)) // instances whose copies declare different geometry
	for i := range p.insts {
		inst := &p.insts[i]
		for u := range p.templates[inst.tmpl].fromTo {
			b := &p.bases[inst.base+uint32(u)]
			c, q := p.declares(b)
			if b.off != q.Offset+c.Offset*q.DType.Size() {
				return p.unproven(b, errOtherPlace)
			}
		}
		alike := func(k uint32) bool { return p.declareAlike(inst, &p.insts[k]) }
		if slices.ContainsFunc(proven[inst.tmpl], alike) {
			continue
		}
		if wrong, err := p.provenUse(inst); err != nil {
			return p.unproven(&p.bases[inst.base+uint32(wrong)], err)
		}
		proven[inst.tmpl] = append(proven[inst.tmpl], uint32(i))
	}
	return nil
}

// unproven blames a copy.
func (p *Plan) unproven(b *base, err error) error {
	c, q := p.declares(b)
	return &Fault{Err: err, Rank: p.dests[b.dest].Rank, Param: q.Name, Source: c.Source, Copy: int(b.copy)}
}

// declares returns the copy of a base, and its parameter.
func (p *Plan) declares(b *base) (*Copy, *Param) {
	d := &p.dests[b.dest]
	c := &d.Copies[b.copy]
	return c, &d.Params[c.Param]
}

// declareAlike reports whether the copies of two instances of one template declare regions of the same form.
func (p *Plan) declareAlike(x, y *instance) bool {
	for u := range p.templates[x.tmpl].fromTo {
		a, qa := p.declares(&p.bases[x.base+uint32(u)])
		b, qb := p.declares(&p.bases[y.base+uint32(u)])
		if qa.DType != qb.DType || !sameInts(a.Shape, b.Shape) || !sameInts(a.Stride, b.Stride) {
			return false
		}
	}
	return true
}

// sameInts is slices.Equal, quick for slices that are the same: captures share them.
func sameInts(a, b []int64) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// Why a copy is not proven. No known engine lays parameters out as errTooManyRuns says.
var (
	errTooManyRuns = fmt.Errorf("%w: copies interleave by strides that don't divide each other, in too many runs to be proven", ErrLimit)
	errOtherPlace  = fmt.Errorf("%w: it is planned for another place", ErrProof)
	errOtherBytes  = fmt.Errorf("%w: the segments don't write what the copy says", ErrProof)
)

// provenUse checks one instance, each of whose copies becomes a space of its own. wrong is the first use of
// which that can't be shown.
func (p *Plan) provenUse(inst *instance) (wrong int, err error) {
	t := p.templates[inst.tmpl]
	spaces := make([]cover.Space, len(t.fromTo))
	declared := make([]cover.Region, len(t.fromTo))
	at := int64(0)
	for u := range spaces {
		c, q := p.declares(&p.bases[inst.base+uint32(u)])
		end := c.region(at, q.DType.Size(), &declared[u])
		spaces[u] = cover.Space{Lo: at, Hi: end}
		at = end
	}
	want := func(yield func(int, *cover.Region) bool) {
		for u := range declared {
			r := declared[u] // a region may be changed
			if !yield(u, &r) {
				return
			}
		}
	}
	v := cover.Equal(spaces, want, t.writes(spaces), 2*(len(t.segs)+len(t.scatters)+len(t.kept)))
	switch {
	case v.Beyond >= 0:
		return v.Beyond, errTooManyRuns
	case v.Stray >= 0:
		return v.Stray, errOtherBytes
	case len(v.Wrong) > 0:
		return v.Wrong[0], errOtherBytes
	}
	return 0, nil
}

// writes yields what each use of the template writes or keeps, in the use's space.
func (t *template) writes(spaces []cover.Space) cover.Regions {
	return func(yield func(int, *cover.Region) bool) {
		var r cover.Region
		for k := range t.segs {
			s := &t.segs[k]
			if s.use == toStaging {
				continue
			}
			r.Off, r.Run, r.NDim = spaces[s.use].Lo+s.dst, s.run, 0
			for d, n := range s.n {
				if n != 1 {
					r.N[r.NDim], r.Stride[r.NDim] = n, s.dstStr[d]
					r.NDim++
				}
			}
			if !yield(int(s.use), &r) {
				return
			}
		}
		for k := range t.scatters {
			s := &t.scatters[k]
			r.Off, r.Run, r.NDim = spaces[s.use].Lo+s.dst, t.fromTo[s.use][1].Size(), len(s.shape)
			copy(r.N[:], s.shape)
			copy(r.Stride[:], s.dstSt)
			if !yield(int(s.use), &r) {
				return
			}
		}
		for k := range t.kept {
			s := &t.kept[k]
			r.Off, r.Run, r.NDim = spaces[s.use].Lo+s.dst, s.run, len(s.dims)
			for d := range s.dims {
				r.N[d], r.Stride[d] = s.dims[d].n, s.dims[d].dst
			}
			if !yield(int(s.use), &r) {
				return
			}
		}
	}
}

// region writes the region that a copy declares, its first element at off, and returns where it ends. elsize is
// that of the parameter; nothing in the copy may be empty.
func (c *Copy) region(off, elsize int64, r *cover.Region) (end int64) {
	r.Off, r.Run, r.NDim = off, elsize, len(c.Shape)
	end = off + elsize
	for i, n := range c.Shape {
		r.N[i], r.Stride[i] = n, c.Stride[i]*elsize
		end += (n - 1) * c.Stride[i] * elsize
	}
	return end
}

// planned yields the regions that the plan's copies declare in one destination, and its fills. Once provenUses
// has succeeded that is what the plan writes and keeps there.
func (p *Plan) planned(dest int) cover.Regions {
	return func(yield func(int, *cover.Region) bool) {
		var r cover.Region
		for i := range p.insts {
			inst := &p.insts[i]
			for u := range p.templates[inst.tmpl].fromTo {
				b := &p.bases[inst.base+uint32(u)]
				if int(b.dest) != dest {
					continue
				}
				c, q := p.declares(b)
				c.region(b.off, q.DType.Size(), &r)
				if !yield(int(b.copy), &r) {
					return
				}
			}
		}
		for i := range p.fills {
			if p.fills[i].Dest == dest && !yield(fillID, p.fills[i].region(&r)) {
				return
			}
		}
	}
}
