package proof

import (
	"errors"
	"fmt"
	"math"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/safetensors"
)

// view is a tensor of source indices, written out: index[i] is the row-major source
// element that lies at row-major place i of a tensor of this shape. Operations rearrange the list.
type view struct {
	shape []int64
	index []uint32
}

// maxElements keeps indices in 32 bits.
const maxElements = math.MaxUint32

// replay applies an op-chain to a source of that shape.
func replay(shape []int64, ops []capturegen.Op) (view, error) {
	nelems, err := safetensors.Count(shape)
	if err != nil {
		return view{}, err
	}
	if nelems > maxElements {
		return view{}, fmt.Errorf("source of shape %v has more than the %d elements that the proof can write out", shape, int64(maxElements))
	}
	v := view{shape: shape, index: make([]uint32, nelems)}
	for i := range v.index {
		v.index[i] = uint32(i)
	}
	var list []view // the result of an op that gives several tensors, until the next op picks one
	for i, op := range ops {
		switch {
		case list != nil:
			v, err = pick(list, op)
			list = nil
		case several[op.Name] != nil:
			list, err = several[op.Name](v, op.Args)
		case one[op.Name] != nil:
			v, err = one[op.Name](v, op.Args)
		default:
			err = errors.New("unknown view operation")
		}
		if err != nil {
			return view{}, fmt.Errorf("op %d, %s%v: %w", i, op.Name, op.Args, err)
		}
	}
	if list != nil {
		return view{}, fmt.Errorf("the op-chain ends with %d tensors, expected one", len(list))
	}
	return v, nil
}

// pick is list[i].
func pick(list []view, op capturegen.Op) (view, error) {
	if op.Name == "__getitem__" && len(op.Args) == 1 {
		if key, ok := op.Args[0].(map[string]any); ok {
			if i, ok := key["int"].(int64); ok {
				if i < 0 {
					i += int64(len(list))
				}
				if i >= 0 && i < int64(len(list)) {
					return list[i], nil
				}
			}
		}
	}
	return view{}, fmt.Errorf("expected the number of one of %d tensors", len(list))
}

// gather keeps the given positions of a dimension, in that order.
func (v view) gather(dim int, positions []int64) view {
	// The list is outer groups of extent positions of inner elements each; whole inner runs move together.
	outer, inner := int64(1), int64(1)
	for _, n := range v.shape[:dim] {
		outer *= n
	}
	for _, n := range v.shape[dim+1:] {
		inner *= n
	}
	extent := v.shape[dim]
	out := view{shape: append([]int64{}, v.shape...), index: make([]uint32, 0, outer*int64(len(positions))*inner)}
	out.shape[dim] = int64(len(positions))
	for o := range outer {
		for _, p := range positions {
			start := (o*extent + p) * inner
			out.index = append(out.index, v.index[start:start+inner]...)
		}
	}
	return out
}

// span is gather of start, start+1, …
func (v view) span(dim int, start, n int64) (view, error) {
	if start < 0 || n < 0 || n > v.shape[dim]-start {
		return view{}, fmt.Errorf("[%d, %d) lies outside dimension %d of shape %v", start, start+n, dim, v.shape)
	}
	positions := make([]int64, n)
	for i := range positions {
		positions[i] = start + int64(i)
	}
	return v.gather(dim, positions), nil
}

// reshaped is the same list under another shape of as many elements.
func (v view) reshaped(shape []int64) view { return view{shape: shape, index: v.index} }

// dropped removes a dimension that holds one element.
func (v view) dropped(dim int) view {
	return v.reshaped(append(append([]int64{}, v.shape[:dim]...), v.shape[dim+1:]...))
}

// inserted adds a dimension of one element.
func (v view) inserted(dim int) view {
	return v.reshaped(append(append(append([]int64{}, v.shape[:dim]...), 1), v.shape[dim:]...))
}

// permuted makes dimension order[d] of v dimension d of the result.
func (v view) permuted(order []int) view {
	stride := make([]int64, len(v.shape)) // of v, in its order
	next := int64(1)
	for d := len(v.shape) - 1; d >= 0; d-- {
		stride[d] = next
		next *= v.shape[d]
	}
	out := view{shape: make([]int64, len(order))}
	from := []uint32{0} // place in v of each element of the result
	for d, was := range order {
		out.shape[d] = v.shape[was]
		grown := make([]uint32, 0, int64(len(from))*v.shape[was])
		for _, at := range from {
			for i := range v.shape[was] {
				grown = append(grown, at+uint32(i*stride[was]))
			}
		}
		from = grown
	}
	out.index = from
	for i, at := range from {
		out.index[i] = v.index[at]
	}
	return out
}
