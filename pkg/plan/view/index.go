package view

// getitem is torch's indexing: integers, slices, one or more Ellipsis, None.
//
// Integers and slices take a dimension each, None takes none, and an Ellipsis stands for all that are left over. A
// second one stands for nothing then, in torch as here. Dimensions are counted in the result as it grows: an integer
// removes the one at hand, so the next index finds its dimension in the same place.
func (s *state) getitem(args []Arg) *Error {
	specified := 0
	for i := range args {
		switch args[i].Kind {
		case ArgInt, ArgSlice:
			specified++
		case ArgIndex, ArgInts:
			return copies("indexing with a list or tensor gathers")
		case ArgText:
			return raises("index %q", args[i].Text)
		}
	}
	whole := s.NDim
	if specified > whole {
		return raises("%d indices for %d dimensions", specified, whole)
	}
	dim := 0
	for i := range args {
		var err *Error
		switch a := &args[i]; a.Kind {
		case ArgInt:
			err = s.selectAt(dim, a.Int)
		case ArgSlice:
			err = s.sliceAt(dim, a)
			dim++
		case ArgEllipsis:
			dim += whole - specified
		case ArgNewAxis:
			err = s.unsqueezeAt(int64(dim))
			dim++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// selectAt takes one index of a dimension, which goes. Negative ones count from the end.
func (s *state) selectAt(dim int, i int64) *Error {
	if dim >= s.NDim {
		return raises("no dimension %d to index", dim)
	}
	n := s.Shape[dim]
	if i < -n || i >= n {
		return raises("index %d of dimension %d of size %d", i, dim, n)
	}
	if i < 0 {
		i += n
	}
	s.Offset += i * s.Stride[dim]
	s.remove(dim)
	return nil
}

// sliceAt clamps as Python does.
func (s *state) sliceAt(dim int, a *Arg) *Error {
	if dim >= s.NDim {
		return raises("no dimension %d to slice", dim)
	}
	n := s.Shape[dim]
	start, stop, step := int64(0), n, int64(1)
	if a.Has&HasStart != 0 {
		start = clamp(a.Start, n)
	}
	if a.Has&HasStop != 0 {
		stop = clamp(a.Stop, n)
	}
	if a.Has&HasStep != 0 {
		step = a.Step
	}
	if step <= 0 {
		return raises("step %d is not positive", step)
	}
	stop = max(stop, start)
	s.Offset += start * s.Stride[dim]
	s.Shape[dim] = (stop - start) / step
	if (stop-start)%step != 0 {
		s.Shape[dim]++
	}
	if s.Shape[dim] > 1 {
		s.Stride[dim] *= step
	}
	return nil
}

// clamp turns a slice's bound into one of [0, n]: Python's slices never fail on bounds.
func clamp(i, n int64) int64 {
	if i < 0 {
		i += n
	}
	return min(max(i, 0), n)
}

// selectIndex is select(dim, index).
func (s *state) selectIndex(args []Arg) *Error {
	a, err := ints(args, 2)
	if err != nil {
		return err
	}
	if s.NDim == 0 {
		return raises("a 0-d tensor has nothing to select")
	}
	dim, err := wrap(a[0], s.NDim)
	if err != nil {
		return err
	}
	return s.selectAt(dim, a[1])
}

// sliceOp is torch.ops.aten.slice(dim, start, stop, step), which some recorders write.
func (s *state) sliceOp(args []Arg) *Error {
	a, err := ints(args, 3, 1)
	if err != nil {
		return err
	}
	dim, err := wrap(a[0], s.NDim)
	if err != nil {
		return err
	}
	return s.sliceAt(dim, &Arg{Kind: ArgSlice, Start: a[1], Stop: a[2], Step: a[3], Has: HasStart | HasStop | HasStep})
}

// narrow is narrow(dim, start, length), the operation that loaders use most. Unlike a slice it refuses what leaves the dimension; its start may
// be negative, and may be the size itself when the length is 0.
func (s *state) narrow(args []Arg) *Error {
	a, err := ints(args, 3)
	if err != nil {
		return err
	}
	if s.NDim == 0 {
		return raises("a 0-d tensor can't be narrowed")
	}
	dim, err := wrap(a[0], s.NDim)
	if err != nil {
		return err
	}
	n, start, length := s.Shape[dim], a[1], a[2]
	if start < -n || start > n {
		return raises("start %d of dimension %d of size %d", start, dim, n)
	}
	if start < 0 {
		start += n
	}
	if length < 0 || start > n-length {
		return raises("start %d and length %d of dimension %d of size %d", start, length, dim, n)
	}
	s.Offset += start * s.Stride[dim]
	s.Shape[dim] = length
	return nil
}

// diagonal is diagonal(offset, dim1, dim2): both dimensions go, a new last one moves along both.
func (s *state) diagonal(args []Arg) *Error {
	a, err := ints(args, 0, 0, 0, 1)
	if err != nil {
		return err
	}
	d1, err := wrap(a[1], s.NDim)
	if err != nil {
		return err
	}
	d2, err := wrap(a[2], s.NDim)
	if err != nil {
		return err
	}
	if d1 == d2 || s.NDim < 2 {
		return raises("dimensions %d and %d of %d", d1, d2, s.NDim)
	}
	right, down := max(a[0], 0), max(-a[0], 0)
	length := max(0, min(s.Shape[d1]-down, s.Shape[d2]-right))
	if length > 0 {
		s.Offset += down*s.Stride[d1] + right*s.Stride[d2]
	}
	stride := s.Stride[d1] + s.Stride[d2]
	s.remove(max(d1, d2))
	s.remove(min(d1, d2))
	s.insert(s.NDim, length, stride)
	return nil
}
