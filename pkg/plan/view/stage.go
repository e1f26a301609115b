package view

// Stage is a row-major tensor that a copying operation made. Its elements are given by parts: boxes that
// together hold each coordinate once, and follow each other along one dimension.
type Stage struct {
	Shape []int64
	Parts []Part
	Dim   int // along which the parts follow each other; each holds the other dimensions whole
}

// Part says where a box of a stage comes from: the element at coordinate c lies at
// Offset + sum(c[d]*Stride[d]) of the tensor before, flat and row-major.
type Part struct {
	Lo, Hi []int64 // coordinates in the stage
	Offset int64
	Stride []int64
}

// copied makes the current tensor a new stage, or refuses to.
func (s *state) copied(refusal *Error) *Error {
	if !s.copies {
		return refusal
	}
	shape := append([]int64(nil), s.Shape[:s.NDim]...)
	s.push(Stage{Shape: shape, Parts: []Part{{
		Lo: make([]int64, s.NDim), Hi: shape, Offset: s.Offset, Stride: append([]int64(nil), s.Stride[:s.NDim]...),
	}}})
	return nil
}

// push goes on with a stage as the tensor at hand: whole, and row-major.
func (s *state) push(st Stage) {
	s.stages = append(s.stages, st)
	s.View, _ = Of(st.Shape) // a view has at most MaxDims dimensions, and so has what is made of it
}

// maxIndices bounds the list that index_select gathers.
const maxIndices = 1 << 16

// indexSelect gathers along a dimension. Indices in arithmetic progression make one part.
func (s *state) indexSelect(args []Arg) *Error {
	if !s.copies {
		return copies("it gathers elements")
	}
	if len(args) != 2 || args[0].Kind != ArgInt || args[1].Kind != ArgInts && args[1].Kind != ArgIndex {
		return raises("expected a dimension and a list of indices")
	}
	dim, err := wrap(args[0].Int, s.NDim)
	if err != nil {
		return err
	}
	list := args[1].Ints
	if s.NDim == 0 || len(list) > maxIndices {
		return unsupported("%d indices of %d dimensions", len(list), s.NDim)
	}
	st := Stage{Shape: append([]int64(nil), s.Shape[:s.NDim]...), Dim: dim}
	st.Shape[dim] = int64(len(list))
	for _, i := range list {
		if i < 0 || i >= s.Shape[dim] {
			return raises("index %d of dimension %d of size %d", i, dim, s.Shape[dim])
		}
	}
	for at := 0; at < len(list); {
		n, step := progression(list[at:])
		p := Part{Lo: make([]int64, s.NDim), Hi: append([]int64(nil), st.Shape...), Stride: append([]int64(nil), s.Stride[:s.NDim]...)}
		p.Lo[dim], p.Hi[dim] = int64(at), int64(at+n)
		p.Stride[dim] = step * s.Stride[dim]
		p.Offset = s.Offset + list[at]*s.Stride[dim] - int64(at)*p.Stride[dim]
		st.Parts = append(st.Parts, p)
		at += n
	}
	s.push(st)
	return nil
}

// progression returns how many numbers the list begins with that grow by the same positive step.
func progression(list []int64) (n int, step int64) {
	if len(list) < 2 || list[1] <= list[0] {
		return 1, 0
	}
	step = list[1] - list[0]
	n = 2
	for n < len(list) && list[n]-list[n-1] == step {
		n++
	}
	return n, step
}
