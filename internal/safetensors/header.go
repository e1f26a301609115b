package safetensors

import "io"

// Tensor is one entry of a header.
type Tensor struct {
	Name   string
	DType  DType
	Shape  []int64 // elements; empty for a 0-d tensor
	Offset int64   // bytes from the start of the file
	Nbytes int64
}

// Header is a file's parsed and proven header.
type Header struct {
	Tensors  []Tensor          // sorted by name
	Metadata map[string]string // of "__metadata__", nil when absent
	Start    int64             // bytes from the start of the file to the first tensor byte
}

// Parse reads and checks the header of a file of size bytes. Name is used in errors only.
func Parse(name string, r io.ReaderAt, size int64) (*Header, error) {
	panic("not yet")
}
