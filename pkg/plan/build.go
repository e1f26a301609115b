package plan

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan/cast"
	"github.com/drydock-rl/drydock/pkg/plan/view"
)

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

// make finishes a plan whose copies are gathered.
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

// nelems returns the number of elements of a shape whose product is known to fit.
func nelems(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
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

// copy checks one copy and notes its use.
func (g *gatherer) copy(dest, k int) {
	d := &g.dests[dest]
	c := &d.Copies[k]
	if c.Param < 0 || c.Param >= len(d.Params) {
		g.fault(dest, "", c.Source, k, ErrUnknownParam, fmt.Sprintf("parameter %d of %d", c.Param, len(d.Params)))
		return
	}
	p := &d.Params[c.Param]
	if p.Excluded != "" {
		g.fault(dest, p.Name, c.Source, k, ErrExcluded, p.Excluded)
		return
	}
	source, ok := g.t.index[c.Source]
	if !ok {
		g.fault(dest, p.Name, c.Source, k, ErrUnknownSource, "")
		return
	}
	geom, err := g.geometry(d, source, c, p)
	if err != nil {
		g.refused.add(&Fault{Err: err, Rank: d.Rank, Param: p.Name, Source: c.Source, Copy: k})
		return
	}
	elsize := p.DType.Size()
	if g.reach[geom] == 0 && c.Offset >= 0 { // no elements: nowhere is as good as anywhere
		return
	}
	if c.Offset < 0 || c.Offset > p.nelems()-g.reach[geom] {
		g.fault(dest, p.Name, c.Source, k, ErrDest, fmt.Sprintf("offset %d, shape %v, strides %v of %d elements", c.Offset, c.Shape, c.Stride, p.nelems()))
		return
	}
	g.uses = append(g.uses, placed{source, geom, int32(dest), int32(k), p.Offset + c.Offset*elsize})
}

// geometry numbers what a copy does, apart from where.
func (g *gatherer) geometry(d *Dest, source uint32, c *Copy, p *Param) (uint32, error) {
	from := g.t.dtypes[source]
	key := geomKey{shape: g.t.shapeOf[source], from: from, to: p.DType, ndim: uint8(len(c.Shape)), nops: len(c.Ops), copies: d.Reorders}
	if len(c.Ops) > 0 {
		key.ops = &c.Ops[0]
	}
	if len(c.Shape) > 0 && len(c.Stride) > 0 {
		key.dims, key.stride = &c.Shape[0], &c.Stride[0]
	}
	if c.DType != Invalid && c.DType != p.DType {
		return 0, fmt.Errorf("%w: recorded as %s, the parameter is %s", ErrDType, c.DType, p.DType)
	}
	if err := g.mayCast(from, p); err != nil {
		return 0, err
	}
	if id, ok := g.known[key]; ok {
		return id, nil
	}
	u, reach, err := g.newUse(d, source, c, p)
	if err != nil {
		return 0, err
	}
	g.row = append(g.row[:0], int64(u.from), int64(u.to), reach)
	for i := range u.walks {
		g.row = u.walks[i].row(g.row)
	}
	id, fresh := g.rows.id(g.row)
	if fresh {
		g.geoms = append(g.geoms, u)
		g.reach = append(g.reach, reach)
	}
	g.known[key] = id
	return id, nil
}

// newUse replays the copy's view and pairs it with its destination. reach is the number of elements from
// the destination's first to past its last; 0 when nothing is copied.
func (g *gatherer) newUse(d *Dest, source uint32, c *Copy, p *Param) (u use, reach int64, err error) {
	from := g.t.dtypes[source]
	replay := view.Replay
	var stages []view.Stage
	if d.Reorders {
		replay = func(shape []int64, ops []Op) (v view.View, err error) {
			v, stages, err = view.ReplayCopies(shape, ops)
			return v, err
		}
	}
	v, err := replay(g.t.shapes.row(g.t.shapeOf[source]), c.Ops)
	if err != nil {
		return u, 0, fmt.Errorf("%w: %w", ErrView, err)
	}
	if err := sameShape(&v, c); err != nil {
		return u, 0, err
	}
	reach, err = destReach(c.Shape, c.Stride)
	if err != nil || reach == 0 {
		return u, 0, err
	}
	for i := range stages {
		if n := len(stages[i].Shape); n > maxSourceDims {
			return u, 0, fmt.Errorf("%w: a reordering of %d dimensions, at most %d", ErrLimit, n, maxSourceDims)
		}
	}
	lead := len(c.Shape) - v.NDim
	walks := []walk{walkOf(&v, c.Stride[lead:], p.DType.Size())}
	for i := len(stages) - 1; i >= 0; i-- {
		var before []walk
		for k := range walks {
			var ok bool
			if before, ok = walks[k].through(&stages[i], before); !ok {
				return u, 0, fmt.Errorf("%w: the reordering falls into more than %d parts", ErrLimit, maxParts)
			}
		}
		walks = before
	}
	return use{walks: walks, from: from, to: p.DType}, reach, nil
}

// sameShape lets a copy have leading dimensions of size 1 that the view lacks, as torch's copy_ does.
// A copy that would repeat elements is refused.
func sameShape(v *view.View, c *Copy) error {
	lead := len(c.Shape) - v.NDim
	ok := lead >= 0 && len(c.Stride) == len(c.Shape)
	for i := 0; ok && i < len(c.Shape); i++ {
		if i < lead {
			ok = c.Shape[i] == 1
		} else {
			ok = c.Shape[i] == v.Shape[i-lead]
		}
	}
	if !ok {
		return fmt.Errorf("%w: the view has %v, the destination %v with strides %v", ErrShape, v.Shape[:v.NDim], c.Shape, c.Stride)
	}
	return nil
}

// destReach returns the elements from the first to past the last of a destination region, and refuses
// regions that write an element twice.
func destReach(shape, stride []int64) (int64, error) {
	if len(shape) != len(stride) {
		return 0, fmt.Errorf("%w: %d sizes and %d strides", ErrShape, len(shape), len(stride))
	}
	if len(shape) > maxWalk {
		return 0, fmt.Errorf("%w: a region of %d dimensions, at most %d", ErrLimit, len(shape), maxWalk)
	}
	var dims []pdim
	reach, ok := int64(1), true
	for d, n := range shape {
		if n < 0 || stride[d] < 0 {
			return 0, fmt.Errorf("%w: shape %v, strides %v", ErrDest, shape, stride)
		}
		if n == 0 {
			return 0, nil
		}
		if n == 1 {
			continue
		}
		far, fits := mul(n-1, stride[d])
		if reach, ok = add(reach, far, ok && fits); !ok {
			return 0, fmt.Errorf("%w: shape %v with strides %v overflows", ErrDest, shape, stride)
		}
		dims = append(dims, pdim{n: n, dst: stride[d]})
	}
	if !distinct(dims, reach) {
		return 0, fmt.Errorf("%w: shape %v with strides %v writes an element twice", ErrOverlap, shape, stride)
	}
	return reach, nil
}

// distinct reports whether a strided region holds each place once. Regions whose strides nest are the
// rule; others are spelled out if they are small, else refused.
func distinct(dims []pdim, reach int64) bool {
	sortBy(dims, func(d pdim) int64 { return d.dst })
	inner, nested := int64(1), true
	for _, d := range dims {
		nested = nested && d.dst >= inner
		inner += (d.n - 1) * d.dst
	}
	if nested {
		return true
	}
	const most = 1 << 24
	if reach > most {
		return false
	}
	seen, twice := make([]bool, reach), false
	p := pattern{dims: dims}
	p.each(func(_, at int64) bool {
		twice = seen[at]
		seen[at] = true
		return !twice
	})
	return !twice
}

// mayCast refuses casts that lose something, unless the parameter is allow-listed, and all casts of integers.
func (g *gatherer) mayCast(from DType, p *Param) error {
	if from == p.DType {
		return nil
	}
	a, b := from.format(), p.DType.format()
	if a == nil || b == nil {
		return fmt.Errorf("%w: %s to %s: only floating-point types are cast", ErrCast, from, p.DType)
	}
	if cast.Lossless(a, b) {
		return nil
	}
	for _, glob := range g.o.AllowNarrowing {
		if ok, _ := path.Match(glob, p.Name); ok {
			return nil
		}
	}
	return fmt.Errorf("%w: %s to %s loses precision; allow it by the parameter's name", ErrCast, from, p.DType)
}

// fill checks a constant region as copy does, and turns it into bytes.
func (g *gatherer) fill(dest int, f *Fill) {
	d := &g.dests[dest]
	if f.Param < 0 || f.Param >= len(d.Params) {
		g.fault(dest, "", "", -1, ErrUnknownParam, fmt.Sprintf("fill of parameter %d of %d", f.Param, len(d.Params)))
		return
	}
	p := &d.Params[f.Param]
	if p.Excluded != "" {
		g.fault(dest, p.Name, "", -1, ErrExcluded, p.Excluded)
		return
	}
	reach, err := destReach(f.Shape, f.Stride)
	var bits []byte
	if err == nil {
		bits, err = p.DType.constant(f.Value)
	}
	if err == nil && (f.Offset < 0 || f.Offset > p.nelems()-reach) {
		err = fmt.Errorf("%w: fill at offset %d, shape %v, strides %v of %d elements", ErrDest, f.Offset, f.Shape, f.Stride, p.nelems())
	}
	if err != nil {
		g.refused.add(&Fault{Err: err, Rank: d.Rank, Param: p.Name, Copy: -1})
		return
	}
	if reach == 0 {
		return
	}
	elsize := p.DType.Size()
	op := FillOp{Dest: dest, Off: p.Offset + f.Offset*elsize, Shape: slices.Clone(f.Shape), Pattern: bits}
	for _, s := range f.Stride {
		op.Stride = append(op.Stride, s*elsize)
	}
	g.fills = append(g.fills, op)
}
