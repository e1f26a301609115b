package plan

import (
	"fmt"
	"maps"
	"slices"
)

// gatherer checks the copies and reduces each to a use: a source, a geometry, a place.
type gatherer struct {
	t       *Table
	dests   []Dest
	o       Options
	refused Refused

	geoms  []use // by number
	reach  []int64
	rows   rows
	known  map[geomKey]uint32
	row    []int64
	fills  []FillOp
	uses   []placed
	picked bool // Select left some copy out
}

// geomKey finds the geometry of a copy again by the identity of its parts: captures share them.
type geomKey struct {
	shape  uint32
	from   DType
	to     DType
	ndim   uint8
	copies bool
	ops    *Op
	nops   int
	dims   *int64
	stride *int64
}

// placed is a copy: which source, which geometry, where in which arena.
type placed struct {
	source uint32
	geom   uint32
	dest   int32
	copy   int32
	off    int64 // bytes from the arena's start to the copy's first element
}

// newGatherer prepares for all copies at once, so that the list of uses is allocated once.
func newGatherer(t *Table, dests []Dest, o Options) *gatherer {
	n := 0
	for i := range dests {
		n += len(dests[i].Copies)
	}
	return &gatherer{t: t, dests: dests, o: o, known: map[geomKey]uint32{}, uses: make([]placed, 0, n)}
}

// fault notes why something of a destination is refused; cp is -1 when it is about no copy.
func (g *gatherer) fault(dest int, param, source string, cp int, err error, detail string) {
	g.refused.add(&Fault{Err: err, Rank: g.dests[dest].Rank, Param: param, Source: source, Copy: cp, Detail: detail})
}

// dest goes through one destination. Copies and fills are only looked at when the parameters make sense:
// otherwise each of them would be a fault that follows from the first.
func (g *gatherer) dest(i int) {
	d := &g.dests[i]
	ok := true
	for k := range d.Params {
		ok = g.param(i, &d.Params[k]) && ok
	}
	ok = ok && g.apart(i)
	ok = g.names(i) && ok
	if !ok {
		return
	}
	for k := range d.Copies {
		if g.o.Select != nil && !g.o.Select(i, &d.Copies[k]) {
			g.picked = true
			continue
		}
		g.copy(i, k)
	}
	for k := range d.Fills {
		g.fill(i, &d.Fills[k])
	}
}

// names checks that every name, aliases included, means one parameter: whoever serves the arena looks them up.
func (g *gatherer) names(dest int) bool {
	d := &g.dests[dest]
	names := make(map[string]bool, len(d.Params))
	ok := true
	for k := range d.Params {
		name := d.Params[k].Name
		if names[name] {
			g.fault(dest, name, "", -1, ErrDest, "two parameters have this name")
			ok = false
		}
		names[name] = true
	}
	for _, other := range slices.Sorted(maps.Keys(d.Alias)) {
		switch name := d.Alias[other]; {
		case !names[name]:
			g.fault(dest, name, "", -1, ErrUnknownParam, fmt.Sprintf("alias %q", other))
		case names[other]:
			g.fault(dest, name, "", -1, ErrDest, fmt.Sprintf("alias %q is the name of another parameter", other))
			ok = false
		}
	}
	return ok
}

// param checks that a parameter's bytes can be counted.
func (g *gatherer) param(dest int, p *Param) bool {
	if p.Excluded != "" {
		return true
	}
	n := p.DType.Size()
	if n == 0 {
		g.fault(dest, p.Name, "", -1, ErrDest, fmt.Sprintf("elements of %s are not whole bytes", p.DType))
		return false
	}
	ok := true
	for _, s := range p.Shape {
		if s < 0 || p.Offset < 0 {
			g.fault(dest, p.Name, "", -1, ErrDest, fmt.Sprintf("a negative size or offset: shape %v at %d", p.Shape, p.Offset))
			return false
		}
		if ok {
			n, ok = mul(n, max(s, 1)) // sizes beside a 0 are to fit too: nelems multiplies them
		}
	}
	if _, ok = add(p.Offset, n, ok); !ok {
		g.fault(dest, p.Name, "", -1, ErrDest, fmt.Sprintf("the bytes of shape %v at %d overflow", p.Shape, p.Offset))
	}
	return ok
}

// nelems returns the number of elements, once the parameter is checked.
func (p *Param) nelems() int64 { return nelems(p.Shape) }

// nbytes returns the bytes of the arena, once the parameter is checked.
func (p *Param) nbytes() int64 { return p.nelems() * p.DType.Size() }

// apart refuses parameters that share bytes of the arena.
func (g *gatherer) apart(dest int) bool {
	params := g.dests[dest].Params
	order := make([]int, 0, len(params))
	for i := range params {
		if params[i].Excluded == "" && params[i].nelems() > 0 {
			order = append(order, i)
		}
	}
	sortBy(order, func(i int) int64 { return params[i].Offset })
	ok := true
	for k := 1; k < len(order); k++ {
		a, b := &params[order[k-1]], &params[order[k]]
		if b.Offset < a.Offset+a.nbytes() {
			g.fault(dest, b.Name, "", -1, ErrOverlap, fmt.Sprintf("it shares bytes of the arena with parameter %q", a.Name))
			ok = false
		}
	}
	return ok
}
