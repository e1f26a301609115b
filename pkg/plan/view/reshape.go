package view

import "math/bits"

// view gives another shape where strides can say it; where they can't, torch refuses.
func (s *state) view(args []Arg) *Error {
	shape, err := s.wanted(args)
	if err != nil {
		return err
	}
	if !s.regroup(shape) {
		return raises("shape %v does not fit the strides of %s", shape, s.String())
	}
	return nil
}

// reshape is view where that works; where it doesn't, torch copies.
func (s *state) reshape(args []Arg) *Error {
	shape, err := s.wanted(args)
	if err != nil {
		return err
	}
	if !s.regroup(shape) {
		if err := s.copied(copies("shape %v does not fit the strides of %s", shape, s.String())); err != nil {
			return err
		}
		s.regroup(shape)
	}
	return nil
}

// wanted returns the sizes asked for, with the one -1 replaced. No argument at all is an error in torch, unlike
// an empty list; captures write the list's elements, so that an empty one leaves nothing.
func (s *state) wanted(args []Arg) ([]int64, *Error) {
	if len(args) == 0 && !s.copies {
		return nil, raises("no sizes, not even an empty list")
	}
	in, err := sizes(args)
	if err != nil {
		return nil, err
	}
	return infer(in, s.Nelems())
}

// infer replaces a single -1 by what is left. With no elements at all that could be any size: refused. The product
// is checked for overflow before it is compared, so that 2^40 × 2^40 is not taken for 0 × something.
func infer(in []int64, nelems int64) ([]int64, *Error) {
	if len(in) > MaxDims {
		return nil, unsupported("%d dimensions, at most %d are supported", len(in), MaxDims)
	}
	known, open := int64(1), -1
	for i, n := range in {
		switch {
		case n == -1 && open < 0:
			open = i
		case n < 0:
			return nil, raises("size %d at place %d", n, i)
		default:
			var over bool
			if known, over = times(known, n); over {
				return nil, raises("the product of %v overflows", in)
			}
		}
	}
	if open < 0 {
		if known != nelems {
			return nil, raises("shape %v has %d elements, the tensor %d", in, known, nelems)
		}
		return in, nil
	}
	if known == 0 || nelems%known != 0 {
		return nil, raises("shape %v can't hold %d elements", in, nelems)
	}
	out := append([]int64(nil), in...)
	out[open] = nelems / known
	return out, nil
}

// times multiplies non-negative numbers.
func times(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi != 0 || lo > 1<<63-1
}

// regroup gives the view another shape with the same elements in the same order, if strides can say it.
// Dimensions are taken from the last to the first; those that lie without a gap form a group, and each
// group must be cut by the new sizes exactly.
//
// Inside a group an element's place is its number times one stride (base), so any sizes whose product is the
// group's can be laid over it. Across a gap no stride can say "and then jump", so a new dimension must not reach
// from one group into the next. This is the rule of torch's computeStride, on which view and reshape agree.
func (s *state) regroup(shape []int64) bool {
	nelems := s.Nelems()
	if s.NDim == 0 || nelems == 0 {
		s.repack(shape, nelems)
		return true
	}
	out := View{NDim: len(shape), Offset: s.Offset}
	next := len(shape) - 1
	group, cut, base := int64(1), int64(1), s.Stride[s.NDim-1]
	for d := s.NDim - 1; d >= 0; d-- {
		group *= s.Shape[d]
		if d > 0 && (s.Shape[d-1] == 1 || s.Stride[d-1] == group*base) {
			continue
		}
		for next >= 0 && (cut < group || shape[next] == 1) {
			out.Shape[next], out.Stride[next] = shape[next], cut*base
			cut *= shape[next]
			next--
		}
		if cut != group {
			return false
		}
		if d > 0 {
			base = s.Stride[d-1]
			group, cut = 1, 1
		}
	}
	if next >= 0 {
		return false
	}
	s.View = out
	return true
}

// repack sets row-major strides: right for a single element, meaningless but harmless for none.
func (s *state) repack(shape []int64, nelems int64) {
	if nelems == 0 && len(shape) == s.NDim {
		same := true
		for d, n := range shape {
			same = same && n == s.Shape[d]
		}
		if same {
			return
		}
	}
	out := View{NDim: len(shape), Offset: s.Offset}
	stride := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		out.Shape[d], out.Stride[d] = shape[d], stride
		stride *= max(shape[d], 1)
	}
	s.View = out
}

// flatten is flatten(start, end), both included; a 0-d tensor becomes one of one element.
func (s *state) flatten(args []Arg) *Error {
	a, err := ints(args, 0, 0, -1)
	if err != nil {
		return err
	}
	first, err := wrap(a[0], s.NDim)
	if err != nil {
		return err
	}
	last, err := wrap(a[1], s.NDim)
	if err != nil {
		return err
	}
	if first > last {
		return raises("flattening from dimension %d to %d", first, last)
	}
	if s.NDim == 0 {
		s.repack([]int64{1}, 1)
		return nil
	}
	if first == last {
		return nil
	}
	shape := append([]int64(nil), s.Shape[:first]...)
	n := int64(1)
	for _, size := range s.Shape[first : last+1] {
		n *= size
	}
	shape = append(append(shape, n), s.Shape[last+1:s.NDim]...)
	if !s.regroup(shape) {
		if err := s.copied(copies("dimensions %d to %d of %s don't lie without a gap", first, last, s.String())); err != nil {
			return err
		}
		s.regroup(shape)
	}
	return nil
}

// unflatten is unflatten(dim, sizes): one dimension becomes several, which strides can always say.
func (s *state) unflatten(args []Arg) *Error {
	if len(args) < 2 || args[0].Kind != ArgInt {
		return raises("expected a dimension and sizes")
	}
	if s.NDim == 0 {
		return raises("a 0-d tensor can't be unflattened")
	}
	dim, err := wrap(args[0].Int, s.NDim)
	if err != nil {
		return err
	}
	in, err := sizes(args[1:])
	if err != nil {
		return err
	}
	if len(in) == 0 {
		return raises("no sizes")
	}
	inner, err := infer(in, s.Shape[dim])
	if err != nil {
		return err
	}
	if s.NDim-1+len(inner) > MaxDims {
		return unsupported("more than %d dimensions", MaxDims)
	}
	shape := append([]int64(nil), s.Shape[:dim]...)
	shape = append(append(shape, inner...), s.Shape[dim+1:s.NDim]...)
	if !s.regroup(shape) {
		return raises("shape %v does not fit the strides of %s", shape, s.String())
	}
	return nil
}

// ravel is contiguous().view(-1): it copies even where reshape(-1) would not, as of every second element.
func (s *state) ravel(args []Arg) *Error {
	if err := s.contiguous(args); err != nil {
		return err
	}
	s.regroup([]int64{s.Nelems()})
	return nil
}

// contiguous is a no-op, or a copy.
func (s *state) contiguous(args []Arg) *Error {
	if len(args) != 0 {
		return unsupported("a memory format")
	}
	if !s.Contiguous() {
		return s.copied(copies("%s is not contiguous", s.String()))
	}
	return nil
}

// clone always copies.
func (s *state) clone(args []Arg) *Error {
	if len(args) != 0 {
		return unsupported("a memory format")
	}
	return s.copied(copies("its result is not a view of the source"))
}

// squeeze drops dimensions of size 1: all, or the named ones that have it.
func (s *state) squeeze(args []Arg) *Error {
	if len(args) == 0 {
		for d := s.NDim - 1; d >= 0; d-- {
			if s.Shape[d] == 1 {
				s.remove(d)
			}
		}
		return nil
	}
	if len(args) != 1 {
		return raises("%d arguments, expected at most 1", len(args))
	}
	dims, err := s.dims(&args[0])
	if err != nil {
		return err
	}
	drop := 0
	for _, d := range dims {
		drop |= 1 << d
	}
	for d := s.NDim - 1; d >= 0; d-- {
		if drop&(1<<d) != 0 && s.Shape[d] == 1 {
			s.remove(d)
		}
	}
	return nil
}

// unsqueeze is unsqueeze(dim): a new dimension of size 1 before dim, or at the end.
func (s *state) unsqueeze(args []Arg) *Error {
	a, err := ints(args, 1)
	if err != nil {
		return err
	}
	return s.unsqueezeAt(a[0])
}

// unsqueezeAt gives the new dimension the stride that torch gives it: that of what follows, taken whole.
func (s *state) unsqueezeAt(dim int64) *Error {
	d, err := wrap(dim, s.NDim+1)
	if err != nil {
		return err
	}
	if s.NDim == MaxDims {
		return unsupported("more than %d dimensions", MaxDims)
	}
	stride := int64(1)
	if d < s.NDim {
		stride = s.Shape[d] * s.Stride[d]
	}
	s.insert(d, 1, stride)
	return nil
}

// expand is allowed where it shows no element twice: equal sizes, new dimensions of size 1, and none at all. Wider
// ones are views in torch, with stride 0; a plan would have to read an element once and write it often, which a
// segment can't say, so they are refused like copies.
func (s *state) expand(args []Arg) *Error {
	if len(args) == 0 && !s.copies {
		return raises("no sizes, not even an empty list")
	}
	want, err := sizes(args)
	if err != nil {
		return err
	}
	fresh := len(want) - s.NDim
	if fresh < 0 {
		return raises("%d sizes for %d dimensions", len(want), s.NDim)
	}
	if len(want) > MaxDims {
		return unsupported("more than %d dimensions", MaxDims)
	}
	out := View{NDim: len(want), Offset: s.Offset}
	wider := false
	for i, n := range want {
		have, stride := int64(1), int64(0)
		if i >= fresh {
			have, stride = s.Shape[i-fresh], s.Stride[i-fresh]
		}
		switch {
		case n == -1 && i >= fresh:
			n = have
		case n < 0:
			return raises("size %d at place %d", n, i)
		case n != have && have != 1:
			return raises("size %d at place %d, the tensor has %d", n, i, have)
		}
		wider = wider || n > have
		out.Shape[i], out.Stride[i] = n, stride
	}
	if wider && out.Nelems() > 0 {
		return copies("expanding to %v shows elements more than once", want)
	}
	s.View = out
	return nil
}
