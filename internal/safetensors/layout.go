package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
)

// Spec is a tensor to be placed in a file.
type Spec struct {
	Name  string
	DType DType
	Shape []int64 // elements
}

// Layout is a file to be written: Header goes to its start, the bytes of tensor i to
// [Tensors[i].Offset, +Nbytes), and the file is Nbytes long. Writing the header last keeps a
// half-written file invalid until the end: its first eight bytes are zero.
type Layout struct {
	Header  []byte   // length, JSON and padding: everything before the first tensor byte
	Tensors []Tensor // in the order of the specs
	Nbytes  int64    // of the whole file
}

// PageAlign is the usual align of NewLayout: tensor bytes begin on a page.
const PageAlign = 4096

// NewLayout places the tensors: the first tensor byte lies at a multiple of align (a power of two, at least 8).
// The format allows no padding between tensors, so wider elements come first, which aligns each tensor to its
// element size; names decide among equals. Same arguments, same bytes.
func NewLayout(specs []Spec, metadata map[string]string, align int64) (*Layout, error) {
	if align < lengthBytes || align&(align-1) != 0 {
		return nil, fmt.Errorf("lay out safetensors file: alignment is %d, expected a power of two of at least %d", align, lengthBytes)
	}
	l := &Layout{Tensors: make([]Tensor, len(specs))}
	for i, spec := range specs {
		nbytes, err := spec.DType.nbytes(spec.Shape)
		if err != nil {
			return nil, fmt.Errorf("lay out tensor %s: %w", spec.Name, err)
		}
		l.Tensors[i] = Tensor{Name: spec.Name, DType: spec.DType, Shape: spec.Shape, Nbytes: nbytes}
	}
	order, err := placed(l.Tensors)
	if err != nil {
		return nil, err
	}
	if l.Nbytes, err = pack(l.Tensors, order); err != nil {
		return nil, err
	}
	if l.Header, err = encodeHeader(l.Tensors, order, metadata, align); err != nil {
		return nil, err
	}
	// The header holds offsets relative to its end, so its length may be settled last.
	start := int64(len(l.Header))
	for i := range l.Tensors {
		l.Tensors[i].Offset += start
	}
	l.Nbytes += start
	return l, nil
}

// placed is the order of the tensors in the file.
func placed(tensors []Tensor) ([]int, error) {
	order := make([]int, len(tensors))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &tensors[a], &tensors[b]
		return cmp.Or(cmp.Compare(y.DType.Bits(), x.DType.Bits()), cmp.Compare(x.Name, y.Name))
	})
	seen := make(map[string]bool, len(tensors))
	for i := range tensors {
		name := tensors[i].Name
		if seen[name] || name == metadataName || len(name) > MaxName || len(tensors[i].Shape) > MaxDims {
			return nil, fmt.Errorf("lay out tensor %q of shape %v: found a repeated, reserved or too long name or shape, "+
				"expected distinct names of at most %d bytes and %d dimensions", name, tensors[i].Shape, MaxName, MaxDims)
		}
		seen[name] = true
	}
	return order, nil
}

// pack gives the tensors consecutive ranges from 0 and returns the end of the last.
func pack(tensors []Tensor, order []int) (int64, error) {
	end := int64(0)
	for _, i := range order {
		t := &tensors[i]
		t.Offset = end
		if end += t.Nbytes; end < 0 {
			return 0, fmt.Errorf("lay out tensor %s: the file would need more than 2^63 bytes", t.Name)
		}
	}
	return end, nil
}

// entry is a tensor as the header writes it.
type entry struct {
	DType   DType    `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// encodeHeader writes length and JSON, padded with spaces so that the whole is a multiple of align.
func encodeHeader(tensors []Tensor, order []int, metadata map[string]string, align int64) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, lengthBytes, lengthBytes+128*(len(tensors)+1)))
	b.WriteByte('{')
	if len(metadata) > 0 {
		if err := member(b, metadataName, metadata); err != nil {
			return nil, err
		}
	}
	for _, i := range order {
		t := &tensors[i]
		shape := t.Shape
		if shape == nil {
			shape = []int64{} // 0-d: the format wants [], not null
		}
		if err := member(b, t.Name, entry{t.DType, shape, [2]int64{t.Offset, t.Offset + t.Nbytes}}); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	for int64(b.Len())%align != 0 { // JSON may be followed by blanks, and every reader skips them
		b.WriteByte(' ')
	}
	header := b.Bytes()
	if len(header)-lengthBytes > MaxHeader {
		return nil, fmt.Errorf("lay out safetensors file: header of %d bytes, expected at most %d", len(header), MaxHeader)
	}
	binary.LittleEndian.PutUint64(header, uint64(len(header)-lengthBytes))
	return header, nil
}

// member appends one key and value to the object that b holds.
func member(b *bytes.Buffer, key string, value any) error {
	k, err := json.Marshal(key)
	if err != nil {
		return fmt.Errorf("encode name %q: %w", key, err)
	}
	v, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode header entry %s: %w", key, err)
	}
	if last := b.Bytes()[b.Len()-1]; last != '{' {
		b.WriteByte(',')
	}
	b.Write(k)
	b.WriteByte(':')
	b.Write(v)
	return nil
}
