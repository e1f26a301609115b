package view

import "math"

// along checks that a tensor can be cut along a dimension, and wraps the dimension.
func (s *state) along(dim int64) (int, *Error) {
	if s.NDim == 0 {
		return 0, raises("a 0-d tensor can't be cut")
	}
	return wrap(dim, s.NDim)
}

// chunk is chunk(n, dim): pieces of equal size rounded up, so there may be fewer than n. Seven rows in four chunks are
// 2, 2, 2, 1; six are 2, 2, 2. FSDP cuts by the same rule, which is where empty shards come from.
func (s *state) chunk(args []Arg) *Error {
	a, err := ints(args, 1, 0)
	if err != nil {
		return err
	}
	dim, err := s.along(a[1])
	if err != nil {
		return err
	}
	n, size := a[0], s.Shape[dim]
	if n <= 0 || n > math.MaxInt64-size {
		return raises("%d chunks", n)
	}
	if size == 0 { // torch gives n empty chunks
		s.list = &parts{dim: dim, n: n, bounds: func(int64) (int64, int64) { return 0, 0 }}
		return nil
	}
	s.splitEvery(dim, (size+n-1)/n)
	return nil
}

// splitEvery cuts into pieces of one size, the last one smaller; a dimension of size 0 is one piece.
func (s *state) splitEvery(dim int, each int64) {
	size := s.Shape[dim]
	n := int64(1)
	if each > 0 {
		n = max(1, size/each)
		if size > each && size%each != 0 {
			n++
		}
	}
	s.list = &parts{dim: dim, n: n, bounds: func(i int64) (int64, int64) {
		return i * each, min(each, size-i*each)
	}}
}

// split is split(size or sizes, dim).
func (s *state) split(args []Arg) *Error {
	if len(args) < 1 || len(args) > 2 {
		return raises("%d arguments, expected 1 or 2", len(args))
	}
	where := int64(0)
	if len(args) == 2 {
		if args[1].Kind != ArgInt {
			return raises("the dimension is not an integer")
		}
		where = args[1].Int
	}
	dim, err := s.along(where)
	if err != nil {
		return err
	}
	if args[0].Kind == ArgInts {
		return s.splitSizes(dim, args[0].Ints)
	}
	each := args[0].Int
	if args[0].Kind != ArgInt || each < 0 || each == 0 && s.Shape[dim] != 0 {
		return raises("pieces of size %d of dimension %d of size %d", each, dim, s.Shape[dim])
	}
	s.splitEvery(dim, each)
	return nil
}

// splitWithSizes is split(sizes, dim): the name under which torch dispatches lists.
func (s *state) splitWithSizes(args []Arg) *Error {
	if len(args) == 0 || args[0].Kind != ArgInts {
		return raises("expected a list of sizes")
	}
	return s.split(args)
}

// splitSizes cuts into pieces of the given sizes, which must add up.
func (s *state) splitSizes(dim int, lengths []int64) *Error {
	starts := make([]int64, len(lengths))
	sum := int64(0)
	for i, n := range lengths {
		if n < 0 || n > s.Shape[dim] {
			return raises("piece %d has size %d of %d", i, n, s.Shape[dim])
		}
		starts[i] = sum
		sum += n
	}
	if sum != s.Shape[dim] {
		return raises("pieces of %v sum up to %d, dimension %d has %d", lengths, sum, dim, s.Shape[dim])
	}
	s.list = &parts{dim: dim, n: int64(len(lengths)), bounds: func(i int64) (int64, int64) { return starts[i], lengths[i] }}
	return nil
}

// tensorSplit cuts into n parts whose sizes differ by at most one, or at the given indices.
func (s *state) tensorSplit(args []Arg) *Error {
	if len(args) < 1 || len(args) > 2 || len(args) == 2 && args[1].Kind != ArgInt {
		return raises("expected sections or indices, and a dimension")
	}
	where := int64(0)
	if len(args) == 2 {
		where = args[1].Int
	}
	dim, err := s.along(where)
	if err != nil {
		return err
	}
	switch args[0].Kind {
	case ArgInt:
		if args[0].Int <= 0 {
			return raises("%d sections", args[0].Int)
		}
		s.splitEvenly(dim, args[0].Int)
	case ArgInts, ArgIndex: // torch takes a tensor of indices too
		if args[0].Text != "" {
			return unsupported("sections %s", args[0].Text)
		}
		s.splitAt(dim, args[0].Ints)
	default:
		return raises("sections are an integer or a list of indices")
	}
	return nil
}

// splitEvenly cuts into n parts, of which the first have one element more if the size doesn't divide.
func (s *state) splitEvenly(dim int, n int64) {
	each, more := s.Shape[dim]/n, s.Shape[dim]%n
	s.list = &parts{dim: dim, n: n, bounds: func(i int64) (int64, int64) {
		if i < more {
			return i * (each + 1), each + 1
		}
		return more*(each+1) + (i-more)*each, each
	}}
}

// splitAt cuts at indices, which are clamped like those of slices; a part that would end before it begins is empty.
func (s *state) splitAt(dim int, at []int64) {
	size := s.Shape[dim]
	s.list = &parts{dim: dim, n: int64(len(at)) + 1, bounds: func(i int64) (int64, int64) {
		start, stop := int64(0), size
		if i > 0 {
			start = clamp(at[i-1], size)
		}
		if i < int64(len(at)) {
			stop = clamp(at[i], size)
		}
		return start, max(stop-start, 0)
	}}
}

// unbind is unbind(dim): one item for each index of a dimension, which goes.
func (s *state) unbind(args []Arg) *Error {
	a, err := ints(args, 0, 0)
	if err != nil {
		return err
	}
	dim, err := s.along(a[0])
	if err != nil {
		return err
	}
	s.list = &parts{dim: dim, n: s.Shape[dim], bounds: func(i int64) (int64, int64) { return i, 1 }, drop: true}
	return nil
}
