package plantest

import (
	"fmt"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// Dense is a tensor whose elements say which element of a source they are: the dumb twin of a view.
type Dense struct {
	Shape []int64
	At    []int64 // flat indices in the source, row-major
}

// NewDense returns a whole source.
func NewDense(shape []int64) *Dense {
	d := &Dense{Shape: shape, At: make([]int64, Nelems(shape))}
	for i := range d.At {
		d.At[i] = int64(i)
	}
	return d
}

// pick makes a tensor of another shape whose element at an index is this one's at from(index).
func (d *Dense) pick(shape []int64, from func(at []int64) []int64) *Dense {
	out := &Dense{Shape: shape}
	stride := RowMajor(d.Shape)
	Each(shape, func(at []int64) {
		flat := int64(0)
		for k, x := range from(at) {
			flat += x * stride[k]
		}
		out.At = append(out.At, d.At[flat])
	})
	return out
}

// Slice takes start, start+step, … below stop along a dimension.
func (d *Dense) Slice(dim int, start, stop, step int64) *Dense {
	shape := append([]int64(nil), d.Shape...)
	shape[dim] = max(0, (stop-start+step-1)/step)
	return d.pick(shape, func(at []int64) []int64 {
		src := append([]int64(nil), at...)
		src[dim] = start + at[dim]*step
		return src
	})
}

// Select takes one index of a dimension, which goes.
func (d *Dense) Select(dim int, i int64) *Dense {
	s := d.Slice(dim, i, i+1, 1)
	s.Shape = append(append([]int64(nil), d.Shape[:dim]...), d.Shape[dim+1:]...)
	return s
}

// Permute reorders the dimensions.
func (d *Dense) Permute(order []int) *Dense {
	shape := make([]int64, len(order))
	for i, k := range order {
		shape[i] = d.Shape[k]
	}
	return d.pick(shape, func(at []int64) []int64 {
		src := make([]int64, len(at))
		for i, k := range order {
			src[k] = at[i]
		}
		return src
	})
}

// Reshape gives the elements another shape, in the same order.
func (d *Dense) Reshape(shape []int64) (*Dense, error) {
	if Nelems(shape) != int64(len(d.At)) {
		return nil, fmt.Errorf("shape %v of %d elements", shape, len(d.At))
	}
	return &Dense{Shape: shape, At: d.At}, nil
}

// Fill copies the elements of full that the dense tensor names into a destination region, one by one.
// Offset and stride are in elements of size bytes.
func (d *Dense) Fill(dst, full []byte, offset int64, stride []int64, size int64) {
	i := 0
	Each(d.Shape, func(at []int64) {
		to := offset
		for k, x := range at {
			to += x * stride[k]
		}
		copy(dst[to*size:(to+1)*size], full[d.At[i]*size:])
		i++
	})
}

// FillWide is Fill from bfloat16 into float32: the upper half is the element, the lower half zero.
func (d *Dense) FillWide(dst, full []byte, offset int64, stride []int64) {
	i := 0
	Each(d.Shape, func(at []int64) {
		to := offset
		for k, x := range at {
			to += x * stride[k]
		}
		copy(dst[to*4:to*4+4], []byte{0, 0, full[d.At[i]*2], full[d.At[i]*2+1]})
		i++
	})
}

// Bytes makes n bytes that differ from place to place and from seed to seed.
func Bytes(n, seed int64) []byte {
	b := make([]byte, n)
	for i := range b {
		z := uint64(i)*0x9E3779B97F4A7C15 + uint64(seed)*0xD1B54A32D192ED03
		z ^= z >> 29
		z *= 0xBF58476D1CE4E5B9
		b[i] = byte(z >> 56)
	}
	return b
}

// Op makes an operation with integer arguments.
func Op(name string, args ...int64) plan.Op {
	op := plan.Op{Name: name}
	for _, a := range args {
		op.Args = append(op.Args, plan.Arg{Int: a})
	}
	return op
}
