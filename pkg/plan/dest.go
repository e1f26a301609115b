package plan

// Param is one parameter of a destination rank: contiguous row-major bytes in that rank's arena.
type Param struct {
	Name     string
	DType    DType
	Shape    []int64 // elements
	Offset   int64   // bytes from the arena's start
	Excluded string  // why no copy can make it; such a parameter has no copies and fills, and is not proven
	Padded   bool    // bytes that no copy or fill names stay as they are, instead of being a hole
}

// ArgKind says which field of an Arg is meant.
type ArgKind uint8

// The kinds of op arguments.
const (
	ArgInt      ArgKind = iota // Int
	ArgInts                    // Ints: a list of sizes, dimensions or lengths
	ArgSlice                   // Start, Stop, Step of an index
	ArgEllipsis                // "..." in an index
	ArgNewAxis                 // None in an index
	ArgIndex                   // Ints: a tensor of indices; always a gather, never a view
	ArgText                    // Text: a dtype, or whatever has no other kind
)

// Arg is one argument of a view operation.
type Arg struct {
	Kind              ArgKind
	Int               int64
	Ints              []int64
	Start, Stop, Step int64
	Has               uint8 // bits HasStart, HasStop, HasStep: the others are absent, as in Python
	Text              string
}

// Which bounds of a slice are given.
const (
	HasStart uint8 = 1 << iota
	HasStop
	HasStep
)

// Op is one view operation with torch's name and arguments; "__getitem__" has one Arg per index.
type Op struct {
	Name string
	Args []Arg
}

// Copy fills a strided region of a parameter with a view of a source. Offset, Shape and Stride are in
// elements of the parameter's dtype; the view has the same shape.
type Copy struct {
	Source        string
	Ops           []Op
	Param         int // index in Dest.Params
	Offset        int64
	Shape, Stride []int64
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
	Rank   int
	Params []Param
	Copies []Copy
	Fills  []Fill
	Alias  map[string]string // other name: name in Params with the same storage
}
