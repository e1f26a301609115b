package plan

import (
	"fmt"

	"github.com/drydock-rl/drydock/pkg/plan/cast"
)

// Scatter moves a strided region from a batch's staging to an arena, casting when From differs from To.
// Offsets and strides are in bytes, Shape in elements.
type Scatter struct {
	Src       int64 // bytes from the staging's start
	Dest      int   // index of the destination
	Dst       int64 // bytes from the arena's start
	From, To  DType
	Shape     []int64
	SrcStride []int64
	DstStride []int64
	Overflow  Overflow
}

// Overflow says what a cast to float8_e4m3fn does with values beyond its range.
type Overflow = cast.Overflow

// The overflow rules.
const (
	OverflowFails     = cast.Fails     // the scatter fails and names the value
	OverflowSaturates = cast.Saturates // ±448, as torch 2.13 on
	OverflowNaN       = cast.ToNaN     // NaN, as torch up to 2.12
)

// formats says how a type is cast; nil: never.
var formats = [numDTypes]*cast.Format{
	F64: cast.F64, F32: cast.F32, F16: cast.F16, BF16: cast.BF16, F8E4M3: cast.F8E4M3,
	F8E5M2: cast.F8E5M2, F8E4M3FNUZ: cast.F8E4M3FNUZ, F8E5M2FNUZ: cast.F8E5M2FNUZ,
}

// format returns how the type is cast; nil: never.
func (d DType) format() *cast.Format {
	if d >= numDTypes {
		return nil
	}
	return formats[d]
}

// Do performs the scatter. dst is the arena of s.Dest, src the batch's staging. It fails before anything
// is written when the region leaves either; when a cast fails, elements before it have been written.
func (s *Scatter) Do(dst, src []byte) error {
	if err := s.fits(dst, src); err != nil {
		return err
	}
	dims := make([]pdim, 0, 8)
	for d, n := range s.Shape {
		if n == 0 {
			return nil
		}
		dims = append(dims, pdim{n: n, src: s.SrcStride[d], dst: s.DstStride[d]})
	}
	if s.From == s.To {
		p := newPattern(s.Src, s.Dst, s.From.Size(), dims)
		p.copyRuns(dst, src)
		return nil
	}
	return s.convert(dst, src, dims)
}

// fits checks the region against both buffers once, so that the loops need not.
func (s *Scatter) fits(dst, src []byte) error {
	from, to := s.Src+s.From.Size(), s.Dst+s.To.Size()
	for d, n := range s.Shape {
		if n == 0 {
			return nil
		}
		from += (n - 1) * s.SrcStride[d]
		to += (n - 1) * s.DstStride[d]
	}
	if s.Src < 0 || from > int64(len(src)) {
		return fmt.Errorf("plan: scatter: bytes [%d, %d) of %d of staging", s.Src, from, len(src))
	}
	if s.Dst < 0 || to > int64(len(dst)) {
		return fmt.Errorf("plan: scatter: bytes [%d, %d) of an arena of %d", s.Dst, to, len(dst))
	}
	return nil
}

// convert casts along the longest dimension: the cast is chosen once a row, and rows of a handful of elements would
// spend their time on choosing.
func (s *Scatter) convert(dst, src []byte, dims []pdim) error {
	from, to := s.From.format(), s.To.format()
	if from == nil || to == nil {
		return fmt.Errorf("plan: scatter: %w: %s to %s", ErrCast, s.From, s.To)
	}
	row := pdim{n: 1}
	if k := longest(dims); k >= 0 {
		row = dims[k]
		dims = append(dims[:k:k], dims[k+1:]...)
	}
	p := pattern{src: s.Src, dst: s.Dst, dims: dims}
	var err error
	p.each(func(at, to0 int64) bool {
		err = cast.Convert(dst[to0:], src[at:], row.n, row.dst, row.src, from, to, s.Overflow)
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("plan: scatter: %w", err)
	}
	return nil
}

// longest returns the dimension with the most elements; -1 if there is none.
func longest(dims []pdim) int {
	best := -1
	for k := range dims {
		if best < 0 || dims[k].n > dims[best].n {
			best = k
		}
	}
	return best
}

// each yields the offsets of the pattern's runs, outermost dimension slowest.
func (p *pattern) each(yield func(src, dst int64) bool) {
	var at [maxWalk]int64
	src, dst := p.src, p.dst
	for {
		if !yield(src, dst) {
			return
		}
		k := len(p.dims) - 1
		for ; k >= 0; k-- {
			d := &p.dims[k]
			src += d.src
			dst += d.dst
			if at[k]++; at[k] < d.n {
				break
			}
			src -= at[k] * d.src
			dst -= at[k] * d.dst
			at[k] = 0
		}
		if k < 0 {
			return
		}
	}
}

// copyRuns copies the pattern's runs. Single elements, as a transposition makes them, get a loop of their
// own: a call of copy for two bytes costs ten times the bytes.
func (p *pattern) copyRuns(dst, src []byte) {
	k := len(p.dims) - 1
	if k < 0 || p.run > 8 {
		p.each(func(at, to int64) bool {
			copy(dst[to:to+p.run], src[at:])
			return true
		})
		return
	}
	row := p.dims[k]
	outer := pattern{src: p.src, dst: p.dst, dims: p.dims[:k]}
	outer.each(func(at, to int64) bool {
		copyElems(dst, src, to, at, &row, p.run)
		return true
	})
}

// copyElems copies single elements of a row; sizes that occur get a loop without calls.
func copyElems(dst, src []byte, to, at int64, row *pdim, elsize int64) {
	switch elsize {
	case 1:
		for range row.n {
			dst[to] = src[at]
			to, at = to+row.dst, at+row.src
		}
	case 2:
		for range row.n {
			d, s := dst[to:to+2:to+2], src[at:at+2:at+2]
			d[0], d[1] = s[0], s[1]
			to, at = to+row.dst, at+row.src
		}
	case 4:
		for range row.n {
			d, s := dst[to:to+4:to+4], src[at:at+4:at+4]
			d[0], d[1], d[2], d[3] = s[0], s[1], s[2], s[3]
			to, at = to+row.dst, at+row.src
		}
	default:
		for range row.n {
			copy(dst[to:to+elsize], src[at:])
			to, at = to+row.dst, at+row.src
		}
	}
}
