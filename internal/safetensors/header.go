package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// Limits of what Parse accepts. The first is the reference implementation's own.
const (
	MaxHeader   = 100_000_000 // bytes of JSON
	MaxTensors  = 1 << 20
	MaxMetadata = 1 << 16 // entries
	MaxName     = 1024    // bytes
	MaxDims     = 16
)

// lengthBytes precede the JSON and hold its length.
const lengthBytes = 8

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
	text, err := readText(name, r, size)
	if err != nil {
		return nil, err
	}
	h := &Header{Start: lengthBytes + int64(len(text))}
	p := parser{file: name, start: h.Start, size: size}
	if err := p.parse(text, h); err != nil {
		return nil, err
	}
	if err := checkCover(name, h, size); err != nil {
		return nil, err
	}
	slices.SortFunc(h.Tensors, func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	return h, nil
}

// readText returns the JSON, whose length is believed only when the file is that long.
func readText(name string, r io.ReaderAt, size int64) ([]byte, error) {
	if size < lengthBytes {
		return nil, &Error{
			File: name, Kind: ErrTruncated, Found: fmt.Sprintf("%d bytes", size),
			Expected: "8 bytes of header length first",
		}
	}
	var length [lengthBytes]byte
	if n, err := r.ReadAt(length[:], 0); n < len(length) {
		return nil, fmt.Errorf("read header length of %s: %w", name, err)
	}
	nbytes := binary.LittleEndian.Uint64(length[:])
	if nbytes > MaxHeader {
		return nil, &Error{
			File: name, Kind: ErrLimit, Found: fmt.Sprintf("a header of %d bytes", nbytes),
			Expected: fmt.Sprintf("at most %d (is this a safetensors file?)", MaxHeader),
		}
	}
	if int64(nbytes) > size-lengthBytes { // a small file can't make the reader allocate for a large header
		return nil, &Error{
			File: name, Kind: ErrTruncated, Found: fmt.Sprintf("%d bytes", size),
			Expected: fmt.Sprintf("a header of %d bytes after the first 8", nbytes),
		}
	}
	text := make([]byte, nbytes)
	if n, err := r.ReadAt(text, lengthBytes); n < len(text) {
		return nil, fmt.Errorf("read header of %s: %w", name, err)
	}
	return text, nil
}

// checkCover proves that the tensors, sorted by range, tile [h.Start, size).
// It leaves h.Tensors in that order.
func checkCover(name string, h *Header, size int64) error {
	slices.SortFunc(h.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Nbytes, b.Nbytes), cmp.Compare(a.Name, b.Name))
	})
	// Zero-byte tensors sort before the tensor that begins where they lie, so they fit in anywhere and nowhere break the chain.
	end, last := h.Start, "the header"
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if t.Offset != end {
			return misplaced(name, h.Start, t, end, last)
		}
		end, last = t.Offset+t.Nbytes, "tensor "+t.Name
	}
	if end != size {
		return &Error{
			File: name, Kind: ErrHole, Found: fmt.Sprintf("%d bytes after %s", size-end, last),
			Expected: "the file to end there",
		}
	}
	return nil
}

// misplaced tells a hole from an overlap, in the file's own relative offsets.
func misplaced(name string, start int64, t *Tensor, end int64, last string) error {
	kind := ErrHole
	if t.Offset < end {
		kind = ErrOverlap
	}
	return &Error{
		File: name, Tensor: t.Name, Kind: kind,
		Found:    fmt.Sprintf("data_offsets [%d, %d]", t.Offset-start, t.Offset-start+t.Nbytes),
		Expected: fmt.Sprintf("a start at %d, where %s ends", end-start, last),
	}
}
