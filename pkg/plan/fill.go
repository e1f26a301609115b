package plan

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan/cast"
)

// FillOp writes a constant to a strided region of an arena.
type FillOp struct {
	Dest          int
	Off           int64   // bytes from the arena's start
	Shape, Stride []int64 // elements, bytes
	Pattern       []byte  // one element, little-endian
}

// Do performs the fill on the arena of f.Dest. Nothing is written when the region leaves the arena.
func (f *FillOp) Do(dst []byte) error {
	end := f.Off + int64(len(f.Pattern))
	p := pattern{dst: f.Off, run: int64(len(f.Pattern))}
	for d, n := range f.Shape {
		if n == 0 {
			return nil
		}
		end += (n - 1) * f.Stride[d]
		p.dims = append(p.dims, pdim{n: n, dst: f.Stride[d]})
	}
	if f.Off < 0 || end > int64(len(dst)) {
		return fmt.Errorf("plan: fill: bytes [%d, %d) of an arena of %d", f.Off, end, len(dst))
	}
	p.each(func(_, to int64) bool {
		copy(dst[to:], f.Pattern)
		return true
	})
	return nil
}

// constant returns the bytes of v in the type: the nearest value of a floating-point type, as torch's fill_
// writes it, since recorders note what a loader asked for. An integer type must hold it exactly.
func (d DType) constant(v float64) ([]byte, error) {
	if f := d.format(); f != nil {
		pattern, holds := cast.Encode(v, f)
		if !holds {
			return nil, fmt.Errorf("%w: %s does not hold %g", ErrCast, d, v)
		}
		return pattern, nil
	}
	if v == 0 && d.Size() > 0 { // zero bytes in every type
		return make([]byte, d.Size()), nil
	}
	lo, hi := d.integers()
	if v != math.Trunc(v) || v < lo || v >= hi {
		return nil, fmt.Errorf("%w: %s does not hold %g", ErrCast, d, v)
	}
	bits := uint64(int64(v))
	if v >= 1<<63 {
		bits = uint64(v)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], bits)
	return append([]byte(nil), b[:d.Size()]...), nil
}

// integers returns the range [lo, hi) of an integer type, as floats; an empty one for other types.
func (d DType) integers() (lo, hi float64) {
	switch d {
	case Bool:
		return 0, 2
	case U8, U16, U32, U64:
		return 0, math.Ldexp(1, int(d.Size()*8))
	case I8, I16, I32, I64:
		return -math.Ldexp(1, int(d.Size()*8-1)), math.Ldexp(1, int(d.Size()*8-1))
	}
	return 0, 0
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
