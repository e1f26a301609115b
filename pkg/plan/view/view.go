// Package view replays torch's view operations on (offset, shape, strides), in pure arithmetic.
//
// It holds no tensor and moves no byte. A View says which elements of a row-major source a chain of
// operations shows, and in which order. For every legal input the answer is torch's, strides of
// dimensions of size 0 and 1 aside (they carry no meaning); what torch refuses is refused as Raises, and
// what would make torch copy or compute is refused as Copies. Operations that are views in torch but show
// an element twice or reinterpret bytes are refused as Unsupported: a plan reads each element once.
//
// Law: the elements of a View are distinct, and each lies inside the source.
package view

import "fmt"

// MaxDims is the largest number of dimensions of a view, intermediate ones included.
const MaxDims = 16

// View is a strided region of a row-major source. All values are in elements.
type View struct {
	NDim   int
	Offset int64
	Shape  [MaxDims]int64
	Stride [MaxDims]int64
}

// Of returns the view of a whole source of the given shape.
func Of(shape []int64) (View, error) {
	if len(shape) > MaxDims {
		return View{}, fmt.Errorf("%d dimensions, at most %d are supported", len(shape), MaxDims)
	}
	v := View{NDim: len(shape)}
	stride := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		v.Shape[d] = shape[d]
		v.Stride[d] = stride
		stride *= max(shape[d], 1)
	}
	return v, nil
}

// Nelems returns the number of elements; 1 for no dimensions.
func (v *View) Nelems() int64 {
	n := int64(1)
	for _, s := range v.Shape[:v.NDim] {
		n *= s
	}
	return n
}

// Contiguous reports whether the elements lie row-major without gaps, as torch's is_contiguous.
func (v *View) Contiguous() bool {
	if v.Nelems() == 0 {
		return true
	}
	want := int64(1)
	for d := v.NDim - 1; d >= 0; d-- {
		if v.Shape[d] == 1 {
			continue
		}
		if v.Stride[d] != want {
			return false
		}
		want *= v.Shape[d]
	}
	return true
}

// String draws the view as offset+shape/strides.
func (v *View) String() string {
	return fmt.Sprintf("%d+%v/%v", v.Offset, v.Shape[:v.NDim], v.Stride[:v.NDim])
}

// remove drops a dimension; its offset must have been taken into account.
func (v *View) remove(d int) {
	copy(v.Shape[d:v.NDim], v.Shape[d+1:v.NDim])
	copy(v.Stride[d:v.NDim], v.Stride[d+1:v.NDim])
	v.NDim--
	v.Shape[v.NDim], v.Stride[v.NDim] = 0, 0
}

// insert adds a dimension before d. There must be room.
func (v *View) insert(d int, size, stride int64) {
	copy(v.Shape[d+1:v.NDim+1], v.Shape[d:v.NDim])
	copy(v.Stride[d+1:v.NDim+1], v.Stride[d:v.NDim])
	v.Shape[d], v.Stride[d] = size, stride
	v.NDim++
}
