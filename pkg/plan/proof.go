package plan

import (
	"fmt"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan/cover"
)

// prove checks the finished segments, scatters and fills of each destination: every byte of its parameters
// exactly once. It goes through the same iterators as whoever performs the plan.
func (p *Plan) prove(g *gatherer) error {
	var refused Refused
	for i := range p.dests {
		p.proveDest(i, g, &refused)
	}
	return refused.err()
}

func (p *Plan) proveDest(dest int, g *gatherer, refused *Refused) {
	d := &p.dests[dest]
	spaces, params := coverSpaces(d)
	want := cover.Whole(spaces)
	padded := slices.ContainsFunc(d.Params, func(p Param) bool { return p.Padded })
	if g.picked || padded {
		// What is asked for is no longer whole parameters: first the copies and fills themselves are
		// checked to write nothing twice and, all of them, everything; then the segments against those
		// that were selected.
		declared := d.regions(dest, g.fills, nil)
		for i := range spaces {
			if d.Params[params[i]].Padded || !d.covers(spaces, i, declared) {
				p.name(dest, i, spaces, params, declared, refused)
			}
		}
		want = d.regions(dest, g.fills, g.o.Select)
	}
	got := p.regions(dest)
	wrong, stray := cover.Equal(spaces, want, got)
	if stray >= 0 {
		refused.add(&Fault{Err: ErrProof, Rank: d.Rank, Copy: -1, Detail: "a write leaves every parameter"})
	}
	before := len(refused.Faults)
	for _, i := range wrong {
		p.name(dest, i, spaces, params, got, refused)
	}
	if len(wrong) > 0 && len(refused.Faults) == before {
		refused.add(&Fault{Err: ErrProof, Rank: d.Rank, Copy: -1, Param: d.Params[params[wrong[0]]].Name,
			Detail: "the segments don't write what the copies say"})
	}
}

// coverSpaces lists the parameters that must be written, by offset, and which they are.
func coverSpaces(d *Dest) (spaces []cover.Space, params []int) {
	for i := range d.Params {
		if q := &d.Params[i]; q.Excluded == "" && q.nelems() > 0 {
			params = append(params, i)
		}
	}
	sortBy(params, func(i int) int64 { return d.Params[i].Offset })
	for _, i := range params {
		q := &d.Params[i]
		spaces = append(spaces, cover.Space{Lo: q.Offset, Hi: q.Offset + q.nbytes()})
	}
	return spaces, params
}

// covers reports whether the declared regions write space i exactly once.
func (d *Dest) covers(spaces []cover.Space, i int, declared cover.Regions) bool {
	only := func(yield func(int, *cover.Region) bool) {
		declared(func(id int, r *cover.Region) bool {
			return r.Off < spaces[i].Lo || r.Off >= spaces[i].Hi || yield(id, r)
		})
	}
	wrong, stray := cover.Equal(spaces[i:i+1], cover.Whole(spaces[i:i+1]), only)
	return len(wrong) == 0 && stray < 0
}

// name turns what is wrong with a space into faults: which bytes of the parameter, and whose copies.
func (p *Plan) name(dest, i int, spaces []cover.Space, params []int, got cover.Regions, refused *Refused) {
	d := &p.dests[dest]
	q := &d.Params[params[i]]
	faults, ok := cover.Faults(i, spaces[i], got, !q.Padded, maxFaults)
	if !ok && q.Padded {
		refused.add(&Fault{Err: ErrLimit, Rank: d.Rank, Param: q.Name, Copy: -1, Detail: "too many runs to prove a padded parameter"})
	} else if !ok {
		refused.add(&Fault{Err: ErrHole, Rank: d.Rank, Param: q.Name, Copy: -1, Detail: "holes or overlaps, in too many runs to name them"})
	}
	for _, f := range faults {
		fault := &Fault{Err: ErrHole, Rank: d.Rank, Param: q.Name, Copy: -1, Box: q.boxAround(f.Lo, f.Hi),
			Detail: fmt.Sprintf("bytes [%d, %d) of %d", f.Lo, f.Hi, q.nbytes())}
		if f.Times > 1 {
			fault.Err = ErrOverlap
			for _, id := range f.IDs {
				if id >= 0 {
					fault.Copy = id
					fault.Source = d.Copies[id].Source
					fault.Detail += fmt.Sprintf(", copy %d of %q", id, d.Copies[id].Source)
				} else {
					fault.Detail += ", a fill"
				}
			}
		}
		refused.add(fault)
	}
}

// boxAround returns the smallest box of the parameter that holds the bytes [lo, hi).
func (q *Param) boxAround(lo, hi int64) []int64 {
	elsize := q.DType.Size()
	first, last := lo/elsize, (hi-1)/elsize
	out := make([]int64, 2*len(q.Shape))
	inner := q.nelems()
	for d, n := range q.Shape {
		inner /= n
		a, b := first/inner, last/inner
		out[2*d], out[2*d+1] = a, b+1
		first, last = first%inner, last%inner
		if a != b {
			first, last = 0, inner-1
		}
	}
	return out
}

// fillID marks regions of fills, whose faults name no copy.
const fillID = -2

// regions yields where the plan writes into one destination.
func (p *Plan) regions(dest int) cover.Regions {
	return func(yield func(int, *cover.Region) bool) {
		var r cover.Region
		for i := range p.batches {
			if !p.batchRegions(i, dest, &r, yield) {
				return
			}
		}
		for i := range p.fills {
			if p.fills[i].Dest == dest && !yield(fillID, p.fills[i].region(&r)) {
				return
			}
		}
	}
}

// batchRegions yields what one batch writes, with the copy that asked for it as id.
func (p *Plan) batchRegions(i, dest int, r *cover.Region, yield func(int, *cover.Region) bool) bool {
	ok := true
	p.reads(i, func(pl *place) bool {
		for k := pl.read.segs; k < pl.read.segsEnd && ok; k++ {
			t := &pl.tmpl.segs[k]
			if t.use == toStaging {
				continue
			}
			b := &p.bases[pl.inst.base+uint32(t.use)]
			if int(b.dest) != dest {
				continue
			}
			s := p.segment(pl, t)
			ok = yield(int(b.copy), s.region(r))
		}
		for k := pl.read.scatters; k < pl.read.scatsEnd && ok; k++ {
			t := &pl.tmpl.scatters[k]
			if b := &p.bases[pl.inst.base+uint32(t.use)]; int(b.dest) == dest {
				r.Off, r.Run, r.NDim = b.off+t.dst, pl.tmpl.fromTo[t.use][1].Size(), len(t.shape)
				copy(r.N[:], t.shape)
				copy(r.Stride[:], t.dstSt)
				ok = yield(int(b.copy), r)
			}
		}
		return ok
	})
	return ok
}

func (s *Segment) region(r *cover.Region) *cover.Region {
	r.Off, r.Run, r.NDim = s.Dst, s.Run, 0
	for d, n := range s.N {
		if n != 1 {
			r.N[r.NDim], r.Stride[r.NDim] = n, s.DstStride[d]
			r.NDim++
		}
	}
	return r
}

func (f *FillOp) region(r *cover.Region) *cover.Region {
	r.Off, r.Run, r.NDim = f.Off, int64(len(f.Pattern)), len(f.Shape)
	copy(r.N[:], f.Shape)
	copy(r.Stride[:], f.Stride)
	return r
}

// regions yields where the copies that pick names, and all fills, write.
func (d *Dest) regions(dest int, fills []FillOp, pick func(int, *Copy) bool) cover.Regions {
	return func(yield func(int, *cover.Region) bool) {
		var r cover.Region
		for k := range d.Copies {
			c := &d.Copies[k]
			if pick != nil && !pick(dest, c) {
				continue
			}
			q := &d.Params[c.Param]
			elsize := q.DType.Size()
			r.Off, r.Run, r.NDim = q.Offset+c.Offset*elsize, elsize, len(c.Shape)
			empty := false
			for i, n := range c.Shape {
				r.N[i], r.Stride[i] = n, c.Stride[i]*elsize
				empty = empty || n == 0
			}
			if !empty && !yield(k, &r) {
				return
			}
		}
		for i := range fills {
			if fills[i].Dest == dest && !yield(fillID, fills[i].region(&r)) {
				return
			}
		}
	}
}
