package view

import "fmt"

// ArgKind says which field of an Arg is meant.
type ArgKind uint8

// The kinds of op arguments.
const (
	ArgInt      ArgKind = iota // Int
	ArgInts                    // Ints: a list of sizes, dimensions or lengths
	ArgSlice                   // Start, Stop, Step of an index
	ArgEllipsis                // "..." in an index
	ArgNewAxis                 // None in an index
	ArgIndex                   // Ints: a tensor or list of indices; always a gather, never a view
	ArgText                    // Text: a dtype, or whatever has no other kind
)

// Which bounds of a slice are given; the others are absent, as in Python.
const (
	HasStart uint8 = 1 << iota
	HasStop
	HasStep
)

// Arg is one argument of a view operation.
type Arg struct {
	Kind              ArgKind
	Has               uint8 // of ArgSlice: HasStart, HasStop, HasStep
	Int               int64
	Ints              []int64
	Start, Stop, Step int64
	Text              string
}

// Op is one operation with torch's name and arguments; "__getitem__" has one Arg per index.
type Op struct {
	Name string
	Args []Arg
}

// Reason says why an operation was refused.
type Reason uint8

// The reasons.
const (
	Raises      Reason = iota // torch itself refuses it
	Copies                    // torch would copy or compute
	Unsupported               // unknown here, or a view that shows elements twice or reinterprets bytes
)

// String says the reason as part of an error.
func (r Reason) String() string {
	return [...]string{"torch refuses it", "it would copy", "it is not a supported view"}[r]
}

// Error names the operation that was refused, by its place in the chain.
type Error struct {
	Op     int    // index in the chain
	Name   string // torch's name
	Reason Reason
	Detail string
}

func (e *Error) Error() string {
	return fmt.Sprintf("op %d %s: %s: %s", e.Op, e.Name, e.Reason, e.Detail)
}

// raises, copies and unsupported make errors of the three reasons; apply adds which operation it was.
func raises(format string, args ...any) *Error {
	return &Error{Reason: Raises, Detail: fmt.Sprintf(format, args...)}
}

func copies(format string, args ...any) *Error {
	return &Error{Reason: Copies, Detail: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) *Error {
	return &Error{Reason: Unsupported, Detail: fmt.Sprintf(format, args...)}
}

// Replay applies the chain to a source of the given shape. The error is an *Error when an op is at fault.
func Replay(shape []int64, ops []Op) (View, error) {
	v, _, err := replay(shape, ops, false)
	return v, err
}

// ReplayCopies is Replay for chains that were recorded on real bytes: operations that copy elements
// without changing them (reshape, flatten, ravel, contiguous, clone, index_select) are replayed too. The
// view is then one of the last stage; each stage is a row-major tensor made of the one before.
func ReplayCopies(shape []int64, ops []Op) (View, []Stage, error) {
	return replay(shape, ops, true)
}

// replay applies the chain; copies says whether operations that copy elements make stages.
func replay(shape []int64, ops []Op, copies bool) (View, []Stage, error) {
	v, err := Of(shape)
	if err != nil {
		return v, nil, err
	}
	s := state{View: v, copies: copies}
	for i := range ops {
		if err := s.apply(&ops[i]); err != nil {
			err.Op, err.Name = i, ops[i].Name
			return View{}, nil, err
		}
	}
	if s.list != nil {
		return View{}, nil, &Error{Op: len(ops) - 1, Name: ops[len(ops)-1].Name, Reason: Raises, Detail: "the result is a list, and no item is picked"}
	}
	return s.View, s.stages, nil
}

// state is a tensor, or the list of tensors that chunk, split and unbind give until an item is picked.
type state struct {
	View
	list   *parts
	copies bool // operations that copy make stages instead of errors
	stages []Stage
}

// parts describes a list of sub-views of one dimension without making them.
type parts struct {
	dim    int
	n      int64
	bounds func(i int64) (start, length int64)
	drop   bool // unbind: each part is one index, and the dimension goes
}

// apply runs one operation. After chunk, split and unbind only an item can be picked.
func (s *state) apply(op *Op) *Error {
	if s.list != nil {
		if op.Name != "__getitem__" {
			return raises("a list of tensors has no such operation")
		}
		return s.pick(op.Args)
	}
	fn, ok := table[op.Name]
	if !ok {
		return refuse(op.Name)
	}
	return fn(s, op.Args)
}

// pick replaces a list by one of its items.
func (s *state) pick(args []Arg) *Error {
	if len(args) != 1 || args[0].Kind != ArgInt {
		return unsupported("an item of a list is picked by one integer")
	}
	i, p := args[0].Int, s.list
	if i < -p.n || i >= p.n {
		return raises("item %d of a list of %d", i, p.n)
	}
	if i < 0 {
		i += p.n
	}
	s.list = nil
	start, length := p.bounds(i)
	s.Offset += start * s.Stride[p.dim]
	s.Shape[p.dim] = length
	if p.drop {
		s.remove(p.dim)
	}
	return nil
}

// wrap turns a possibly negative dimension into one of [0, n); n is 1 for a 0-d tensor, as in torch.
func wrap(dim int64, n int) (int, *Error) {
	n = max(n, 1)
	if dim < int64(-n) || dim >= int64(n) {
		return 0, raises("dimension %d is outside [%d, %d)", dim, -n, n)
	}
	if dim < 0 {
		dim += int64(n)
	}
	return int(dim), nil
}

// ints checks that the arguments are integers, and returns them in order; missing ones take the defaults.
func ints(args []Arg, required int, defaults ...int64) ([]int64, *Error) {
	if len(args) < required || len(args) > required+len(defaults) {
		return nil, raises("%d arguments, expected %d to %d", len(args), required, required+len(defaults))
	}
	out := make([]int64, 0, 4)
	for i := range args {
		if args[i].Kind != ArgInt {
			return nil, raises("argument %d is not an integer", i)
		}
		out = append(out, args[i].Int)
	}
	return append(out, defaults[len(args)-required:]...), nil
}

// sizes takes sizes or dimensions, flat or as one list.
func sizes(args []Arg) ([]int64, *Error) {
	if len(args) == 1 && args[0].Kind == ArgInts {
		return args[0].Ints, nil
	}
	out := make([]int64, 0, 8)
	for i := range args {
		if args[i].Kind == ArgText {
			return nil, unsupported("reinterpreting the elements as %s", args[i].Text)
		}
		if args[i].Kind != ArgInt {
			return nil, raises("argument %d is not an integer", i)
		}
		out = append(out, args[i].Int)
	}
	return out, nil
}
