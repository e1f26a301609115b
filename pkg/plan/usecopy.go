package plan

import (
	"fmt"
	"path"

	"github.com/drydock-rl/drydock/pkg/plan/cast"
	"github.com/drydock-rl/drydock/pkg/plan/view"
)

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

// geometry numbers what a copy does, apart from where. Captures share the slices of equal op-chains, shapes and
// strides, so a look-up by their identity finds most geometries without replaying anything; two that are equal
// without being the same slices get the same number by their walks.
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

// mayCast refuses casts that lose something, unless the parameter is allow-listed, and all casts of integers. It is
// asked for each copy, not for each geometry: leave is given by the parameter's name.
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
