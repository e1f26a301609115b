package plan

import "fmt"

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

// distinct reports whether a strided region holds each place once. Regions whose strides nest, each at least as
// long as what the smaller ones reach, are the rule, and hold each place once because their places are digits of a
// mixed radix. Others (strides 2 and 3) may or may not: they are spelled out if they are small, else refused.
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
