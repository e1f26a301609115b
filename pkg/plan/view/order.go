package view

// swap exchanges two dimensions, which may be the same.
func (s *state) swap(a, b int) {
	s.Shape[a], s.Shape[b] = s.Shape[b], s.Shape[a]
	s.Stride[a], s.Stride[b] = s.Stride[b], s.Stride[a]
}

// transpose is transpose(dim0, dim1). A 0-d tensor may name dimension 0 or -1, as in torch.
func (s *state) transpose(args []Arg) *Error {
	a, err := ints(args, 2)
	if err != nil {
		return err
	}
	x, err := wrap(a[0], s.NDim)
	if err != nil {
		return err
	}
	y, err := wrap(a[1], s.NDim)
	if err != nil {
		return err
	}
	s.swap(x, y)
	return nil
}

// t swaps two dimensions, and leaves tensors of fewer alone.
func (s *state) t(args []Arg) *Error {
	if len(args) != 0 || s.NDim > 2 {
		return raises("t() of %d dimensions with %d arguments", s.NDim, len(args))
	}
	if s.NDim == 2 {
		s.swap(0, 1)
	}
	return nil
}

// reversed is the attribute T: all dimensions in reverse.
func (s *state) reversed(args []Arg) *Error {
	if len(args) != 0 {
		return raises("%d arguments, expected none", len(args))
	}
	for d := range s.NDim / 2 {
		s.swap(d, s.NDim-1-d)
	}
	return nil
}

// matrixTransposed is the attribute mT: the last two dimensions swapped. torch leaves a 0-d tensor alone, and
// refuses a 1-d one.
func (s *state) matrixTransposed(args []Arg) *Error {
	if len(args) != 0 || s.NDim == 1 {
		return raises("mT of %d dimensions", s.NDim)
	}
	if s.NDim == 0 {
		return nil
	}
	s.swap(s.NDim-2, s.NDim-1)
	return nil
}

// permute names every dimension once, in its new order.
func (s *state) permute(args []Arg) *Error {
	if len(args) == 0 && !s.copies {
		return raises("no dimensions, not even an empty list")
	}
	dims, err := sizes(args)
	if err != nil {
		return err
	}
	if len(dims) != s.NDim {
		return raises("%d dimensions named, the tensor has %d", len(dims), s.NDim)
	}
	var order [MaxDims]int
	seen := 0
	for i, d := range dims {
		w, err := wrap(d, s.NDim)
		if err != nil {
			return err
		}
		if seen&(1<<w) != 0 {
			return raises("dimension %d is named twice", w)
		}
		seen |= 1 << w
		order[i] = w
	}
	s.reorder(order[:s.NDim])
	return nil
}

// reorder puts dimension order[i] at place i.
func (s *state) reorder(order []int) {
	old := s.View
	for i, d := range order {
		s.Shape[i], s.Stride[i] = old.Shape[d], old.Stride[d]
	}
}

// movedim moves the named dimensions to the named places; the others keep their order and fill the places that are
// left, from the first on.
func (s *state) movedim(args []Arg) *Error {
	if len(args) != 2 || args[0].Kind != args[1].Kind {
		return raises("%d arguments, expected two dimensions, or two lists of them", len(args))
	}
	from, err := s.dims(&args[0])
	if err != nil {
		return err
	}
	to, err := s.dims(&args[1])
	if err != nil {
		return err
	}
	if len(from) != len(to) {
		return raises("%d dimensions to %d places", len(from), len(to))
	}
	if s.NDim == 0 {
		return nil
	}
	var order [MaxDims]int
	taken, moved := 0, 0
	for i := range from {
		order[to[i]] = from[i]
		taken |= 1 << to[i]
		moved |= 1 << from[i]
	}
	next := 0
	for place := range s.NDim {
		if taken&(1<<place) != 0 {
			continue
		}
		for moved&(1<<next) != 0 {
			next++
		}
		order[place] = next
		next++
	}
	s.reorder(order[:s.NDim])
	return nil
}

// dims takes one dimension or a list of distinct ones.
func (s *state) dims(a *Arg) ([]int, *Error) {
	var list []int64
	switch a.Kind {
	case ArgInt:
		list = []int64{a.Int}
	case ArgInts:
		list = a.Ints
	default:
		return nil, raises("expected a dimension or a list of them")
	}
	out := make([]int, len(list))
	seen := 0
	for i, d := range list {
		w, err := wrap(d, s.NDim)
		if err != nil {
			return nil, err
		}
		if seen&(1<<w) != 0 {
			return nil, raises("dimension %d is named twice", w)
		}
		seen |= 1 << w
		out[i] = w
	}
	return out, nil
}
