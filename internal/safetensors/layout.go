package safetensors

// Spec is a tensor to be placed in a file.
type Spec struct {
	Name  string
	DType DType
	Shape []int64 // elements
}

// Layout is a file to be written: Header goes to its start, the bytes of tensor i to
// [Tensors[i].Offset, +Nbytes), and the file is Nbytes long. Writing the header last makes a
// half-written file invalid until the end: its first eight bytes are zero.
type Layout struct {
	Header  []byte   // length, JSON and padding: everything before the first tensor byte
	Tensors []Tensor // in the order of the specs
	Nbytes  int64    // of the whole file
}

// PageAlign is the usual align of NewLayout: tensor bytes begin on a page.
const PageAlign = 4096

// NewLayout places the tensors: the first tensor byte lies at a multiple of align (a power of two, at least 8),
// wider elements come first, so that every tensor is aligned to its element size, then names decide.
func NewLayout(specs []Spec, metadata map[string]string, align int64) (*Layout, error) {
	panic("not yet")
}
