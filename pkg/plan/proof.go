package plan

import (
	"fmt"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan/cover"
)

// prove checks the finished plan: every byte of the parameters of every destination exactly once.
func (p *Plan) prove(g *gatherer) error {
	if err := p.eachReadOnce(); err != nil {
		return err
	}
	if err := p.provenUses(); err != nil {
		return err
	}
	var refused Refused
	for i := range p.dests {
		p.proveDest(i, g, &refused)
	}
	return refused.err()
}

// proveDest checks one destination: first, if less than whole parameters is asked for, what is asked for; then
// the plan against it.
func (p *Plan) proveDest(dest int, g *gatherer, refused *Refused) {
	d := &p.dests[dest]
	j := judge{d: d, refused: refused}
	j.spaces, j.params = coverSpaces(d)
	want := cover.Whole(j.spaces)
	switch {
	case g.picked:
		// Less than whole parameters is asked for. First the copies and fills themselves are checked, all
		// of them; then the segments against those that were selected.
		j.declared(d.regions(dest, g.fills, nil))
		want = d.regions(dest, g.fills, g.o.Select)
	case slices.ContainsFunc(d.Params, func(q Param) bool { return q.Padded }):
		want = j.padded(d.regions(dest, g.fills, nil))
	}
	got := p.planned(dest)
	v := cover.Equal(j.spaces, want, got, len(p.bases)+len(p.fills)+2*len(d.Params))
	if v.Beyond >= 0 {
		refused.add(&Fault{Err: errTooManyRuns, Rank: d.Rank, Copy: -1, Param: d.Params[j.params[v.Beyond]].Name})
	}
	if v.Stray >= 0 {
		refused.add(&Fault{Err: ErrProof, Rank: d.Rank, Copy: -1, Detail: "a write leaves every parameter"})
	}
	if before := len(refused.Faults) + refused.More; len(v.Wrong) > 0 {
		j.name(v.Wrong, got, true)
		if len(refused.Faults)+refused.More == before {
			refused.add(&Fault{Err: errOtherBytes, Rank: d.Rank, Copy: -1, Param: d.Params[j.params[v.Wrong[0]]].Name})
		}
	}
}

// judge finds and names what is wrong with one destination.
type judge struct {
	d       *Dest
	spaces  []cover.Space // of the parameters, by offset
	params  []int         // which parameter a space is
	refused *Refused
}

// split returns the spaces that must be written whole, and those that may keep bytes, by index.
func (j *judge) split() (full, padded []int) {
	for i := range j.spaces {
		if j.d.Params[j.params[i]].Padded {
			padded = append(padded, i)
		} else {
			full = append(full, i)
		}
	}
	return full, padded
}

// pick returns some of the spaces.
func (j *judge) pick(which []int) []cover.Space {
	out := make([]cover.Space, len(which))
	for k, i := range which {
		out[k] = j.spaces[i]
	}
	return out
}

// declared checks what copies and fills say they write: whole parameters exactly once, padded ones
// nowhere twice. A selection is planned only out of a capture that is right as a whole: a hole would stay unseen until
// somebody selects it.
func (j *judge) declared(regions cover.Regions) {
	full, padded := j.split()
	whole := j.pick(full)
	v := cover.Equal(whole, cover.Whole(whole), cover.Within(whole, regions), 2*len(j.d.Copies)+len(whole))
	if v.Beyond >= 0 {
		j.refused.add(&Fault{Err: errTooManyRuns, Rank: j.d.Rank, Copy: -1, Param: j.d.Params[j.params[full[v.Beyond]]].Name})
	}
	wrong := v.Wrong
	for k, i := range wrong {
		wrong[k] = full[i]
	}
	j.name(wrong, regions, true)
	j.name(padded, regions, false)
}

// padded checks that nothing is declared twice in padded parameters, and returns what must be written: those
// regions, and the other parameters whole.
func (j *judge) padded(regions cover.Regions) cover.Regions {
	full, padded := j.split()
	j.name(padded, regions, false)
	whole, some := cover.Whole(j.pick(full)), cover.Within(j.pick(padded), regions)
	return func(yield func(int, *cover.Region) bool) {
		ok := true
		whole(func(id int, r *cover.Region) bool {
			ok = yield(id, r)
			return ok
		})
		if ok {
			some(yield)
		}
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

// name turns what is wrong with some spaces into faults: which bytes of the parameter, and whose copies.
func (j *judge) name(which []int, got cover.Regions, holes bool) {
	if len(which) == 0 {
		return
	}
	faults, ok := cover.Faults(j.spaces, which, got, holes, maxFaults)
	if !ok && len(faults) == 0 {
		j.refused.add(&Fault{
			Err: ErrHole, Rank: j.d.Rank, Param: j.d.Params[j.params[which[0]]].Name, Copy: -1,
			Detail: "holes or overlaps, in too many runs to name them",
		})
	}
	for i := range faults {
		j.refused.add(j.fault(&faults[i]))
	}
}

// fault says it in terms of the parameter: a box of its elements, and the copies that collide.
func (j *judge) fault(f *cover.Fault) *Fault {
	q := &j.d.Params[j.params[f.Space]]
	out := &Fault{
		Err: ErrHole, Rank: j.d.Rank, Param: q.Name, Copy: -1, Box: q.boxAround(f.Lo, f.Hi),
		Detail: fmt.Sprintf("bytes [%d, %d) of %d", f.Lo, f.Hi, q.nbytes()),
	}
	if f.Times < 2 {
		return out
	}
	out.Err = ErrOverlap
	for _, id := range f.IDs {
		if id < 0 {
			out.Detail += ", a fill"
			continue
		}
		out.Copy, out.Source = id, j.d.Copies[id].Source
		out.Detail += fmt.Sprintf(", copy %d of %q", id, out.Source)
	}
	return out
}

// boxAround returns the smallest box of the parameter that holds the bytes [lo, hi). Once the first and the last
// element differ in some coordinate, every coordinate after it may be anything.
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

// writes bounds the number of regions that the plan writes, parameters included.
func (p *Plan) writes() int {
	n := len(p.fills)
	for i := range p.dests {
		n += len(p.dests[i].Params)
	}
	for i := range p.insts {
		t := p.templates[p.insts[i].tmpl]
		n += len(t.segs) + len(t.scatters)
	}
	return n
}

// fillID marks regions of fills, whose faults name no copy.
const fillID = -2

// regions yields where the segments and scatters of all batches write into one destination, and the fills.
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

// region writes where the segment lands, as cover sees it. r is reused: there are millions.
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

// region writes where the fill lands.
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
