package plan

import (
	"fmt"

	"github.com/drydock-rl/drydock/pkg/plan/view"
)

// Param is one parameter of a destination rank: contiguous row-major bytes in that rank's arena.
type Param struct {
	Name     string
	DType    DType
	Shape    []int64 // elements
	Offset   int64   // bytes from the arena's start
	Excluded string  // why no copy can make it; such a parameter has no copies and fills, and is not proven
	Padded   bool    // bytes that no copy or fill names stay as they are, instead of being a hole
}

// Op is one view operation with torch's name and arguments. Package view says what it means.
type Op = view.Op

// Arg is one argument of an Op.
type Arg = view.Arg

// ArgKind says which field of an Arg is meant.
type ArgKind = view.ArgKind

// The kinds of op arguments.
const (
	ArgInt      = view.ArgInt
	ArgInts     = view.ArgInts
	ArgSlice    = view.ArgSlice
	ArgEllipsis = view.ArgEllipsis
	ArgNewAxis  = view.ArgNewAxis
	ArgIndex    = view.ArgIndex
	ArgText     = view.ArgText
)

// Which bounds of a slice are given; the others are absent, as in Python.
const (
	HasStart = view.HasStart
	HasStop  = view.HasStop
	HasStep  = view.HasStep
)

// Copy fills a strided region of a parameter with a view of a source. Offset, Shape and Stride are in
// elements of the parameter's dtype; the view has the same shape.
type Copy struct {
	Source        string
	Ops           []Op
	Param         int // index in Dest.Params
	Offset        int64
	Shape, Stride []int64
	DType         DType // as recorded; Invalid: whatever the parameter has. Another type than that is refused
}

// Fill sets a strided region of a parameter to a constant. Units as in Copy.
type Fill struct {
	Param         int
	Offset        int64
	Shape, Stride []int64
	Value         float64
}

// Dest is what one destination rank needs.
type Dest struct {
	Rank int
	// Reorders lets op-chains copy elements on the way (a reshape of a transposed tensor, index_select), as
	// captures of real loaders do. Without it such an operation is refused by name.
	Reorders bool
	Params   []Param
	Copies   []Copy
	Fills    []Fill
	Alias    map[string]string // other name: name in Params with the same storage
}

// ReplayShape returns the shape that an op-chain gives to a source of the given shape, and refuses chains
// as New does.
func ReplayShape(shape []int64, ops []Op) ([]int64, error) {
	v, err := view.Replay(shape, ops)
	if err != nil {
		return nil, fmt.Errorf("plan: %w: %w", ErrView, err)
	}
	return v.Shape[:v.NDim:v.NDim], nil
}

// LayOut places the parameters one after the other, each at a multiple of align bytes (0: 256), and
// returns the bytes of the arena.
func (d *Dest) LayOut(align int64) int64 {
	if align <= 0 {
		align = 256
	}
	at := int64(0)
	for i := range d.Params {
		q := &d.Params[i]
		if q.Excluded != "" {
			continue
		}
		at = (at + align - 1) / align * align
		q.Offset = at
		at += q.nbytes()
	}
	return at
}
