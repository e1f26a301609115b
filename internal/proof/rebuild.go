package proof

import (
	"bytes"
	"fmt"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/safetensors"
)

// tensor is row-major bytes with their meaning.
type tensor struct {
	dtype safetensors.DType
	shape []int64
	bytes []byte
}

// expected is a parameter as it must be.
type expected struct {
	tensor
	cast bool // some copy converted, so a NaN stands for any NaN
}

// rebuild makes a parameter's bytes, and proves on the way that copies and fills write each element exactly once.
func rebuild(p *capturegen.Param, copies []capturegen.Copy, fills []capturegen.Fill, source func(int) (tensor, error)) (expected, error) {
	nelems, err := safetensors.Count(p.Shape)
	if err != nil {
		return expected{}, err
	}
	if nelems > maxElements {
		return expected{}, fmt.Errorf("shape %v has more than the %d elements that the proof can write out", p.Shape, int64(maxElements))
	}
	out := expected{tensor: tensor{p.DType, p.Shape, make([]byte, nelems*p.DType.Size())}}
	written := make([]uint8, nelems) // how often, 0 or 1: a second time is an error at once
	for i := range copies {
		if err := out.copy(&copies[i], written, source); err != nil {
			return expected{}, fmt.Errorf("copy %d of %d: %w", i+1, len(copies), err)
		}
	}
	for i := range fills {
		if err := out.fill(&fills[i], written); err != nil {
			return expected{}, fmt.Errorf("fill %d of %d: %w", i+1, len(fills), err)
		}
	}
	if i := bytes.IndexByte(written, 0); i >= 0 {
		return expected{}, fmt.Errorf("element %d is written by no copy and no fill", i)
	}
	return out, nil
}

// copy writes the elements of one view.
func (e *expected) copy(c *capturegen.Copy, written []uint8, source func(int) (tensor, error)) error {
	from, err := source(c.Source)
	if err != nil {
		return err
	}
	v, err := replay(from.shape, c.Ops)
	if err != nil {
		return err
	}
	to, err := places(c.Place, written)
	if err != nil {
		return err
	}
	if !equal(withoutOnes(v.shape), withoutOnes(c.Shape)) {
		return fmt.Errorf("view of shape %v can't fill a place of shape %v", v.shape, c.Shape)
	}
	if from.dtype != e.dtype {
		e.cast = true
		return convert(e.tensor, from, to, v.index)
	}
	size := int(e.dtype.Size())
	for i, at := range to {
		d, s := int(at)*size, int(v.index[i])*size
		copy(e.bytes[d:d+size], from.bytes[s:s+size])
	}
	return nil
}

// convert writes elements one by one by the definition of the conversion.
func convert(to, from tensor, toIndex, fromIndex []uint32) error {
	if err := castable(from.dtype, to.dtype); err != nil {
		return err
	}
	read, write := decoders[from.dtype], encoders[to.dtype]
	d, s := int(to.dtype.Size()), int(from.dtype.Size())
	for i, at := range toIndex {
		value := read(from.bytes[int(fromIndex[i])*s:])
		if from.dtype == safetensors.F64 && to.dtype != safetensors.F64 {
			value = float64(float32(value)) // torch narrows in two steps
		}
		write(to.bytes[int(at)*d:], value)
	}
	return nil
}

// fill writes a constant.
func (e *expected) fill(f *capturegen.Fill, written []uint8) error {
	to, err := places(f.Place, written)
	if err != nil {
		return err
	}
	size := int(e.dtype.Size())
	if f.Value == 0 {
		return nil // e.bytes began as zeros, which is 0 in every dtype
	}
	write := encoders[e.dtype]
	if write == nil {
		return fmt.Errorf("constant %g in %s is not supported, only 0 is", f.Value, e.dtype)
	}
	for _, at := range to {
		write(e.bytes[int(at)*size:], f.Value)
	}
	return nil
}

// places lists the parameter's element indices of a place in row-major order, and counts each as written.
func places(p capturegen.Place, written []uint8) ([]uint32, error) {
	index := []uint32{uint32(p.Offset)} // grows by one dimension after the other, outermost first
	for d, extent := range p.Shape {
		next := make([]uint32, 0, int64(len(index))*extent)
		for _, at := range index {
			for i := range extent {
				next = append(next, at+uint32(i*p.Stride[d]))
			}
		}
		index = next
	}
	for _, at := range index {
		if int64(at) >= int64(len(written)) {
			return nil, fmt.Errorf("element %d lies outside the parameter's %d", at, len(written))
		}
		if written[at] > 0 {
			return nil, fmt.Errorf("element %d is written twice", at)
		}
		written[at] = 1
	}
	return index, nil
}

// compare finds the first element that differs.
func (e *expected) compare(found []byte, arena, param string) *Difference {
	if bytes.Equal(e.bytes, found) {
		return nil
	}
	size := int(e.dtype.Size())
	for at := 0; at < len(e.bytes); at += size {
		want, have := e.bytes[at:at+size], found[at:at+size]
		if bytes.Equal(want, have) || e.cast && isNaN(e.dtype, want) && isNaN(e.dtype, have) {
			continue
		}
		return &Difference{Arena: arena, Param: param, Element: int64(at / size), Expected: bytes.Clone(want), Found: bytes.Clone(have)}
	}
	return nil
}

// withoutOnes drops the dimensions that hold one element: they say nothing about order.
func withoutOnes(shape []int64) []int64 {
	var out []int64
	for _, dim := range shape {
		if dim != 1 {
			out = append(out, dim)
		}
	}
	return out
}
