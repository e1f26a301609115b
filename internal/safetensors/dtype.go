package safetensors

import "fmt"

// DType is an element type by its name in the file format, for example "BF16".
// plan.ParseDType and messages.ParseDType take the same names.
type DType string

// The element types of the format.
const (
	Bool       DType = "BOOL"
	U8         DType = "U8"
	I8         DType = "I8"
	I16        DType = "I16"
	U16        DType = "U16"
	I32        DType = "I32"
	U32        DType = "U32"
	I64        DType = "I64"
	U64        DType = "U64"
	F16        DType = "F16"
	BF16       DType = "BF16"
	F32        DType = "F32"
	F64        DType = "F64"
	F8E4M3     DType = "F8_E4M3"
	F8E5M2     DType = "F8_E5M2"
	F8E4M3FNUZ DType = "F8_E4M3FNUZ"
	F8E5M2FNUZ DType = "F8_E5M2FNUZ"
	F8E8M0     DType = "F8_E8M0"
	F4         DType = "F4"
	F6E2M3     DType = "F6_E2M3"
	F6E3M2     DType = "F6_E3M2"
	C64        DType = "C64"
)

// bits of one element. Four and six bit elements are packed without gaps.
var bits = map[DType]int64{
	Bool: 8, U8: 8, I8: 8, I16: 16, U16: 16, I32: 32, U32: 32, I64: 64, U64: 64,
	F16: 16, BF16: 16, F32: 32, F64: 64, C64: 64,
	F8E4M3: 8, F8E5M2: 8, F8E4M3FNUZ: 8, F8E5M2FNUZ: 8, F8E8M0: 8,
	F4: 4, F6E2M3: 6, F6E3M2: 6,
}

// Bits is the width of one element, 0 for a name that the format doesn't know.
func (d DType) Bits() int64 { return bits[d] }

// Size is the width of one element in bytes, 0 for unknown and for sub-byte types.
func (d DType) Size() int64 {
	if bits[d]%8 != 0 {
		return 0
	}
	return bits[d] / 8
}

// nbytes of a tensor, or an error when the count overflows or ends inside a byte.
func (d DType) nbytes(shape []int64) (int64, error) {
	nelems, err := Count(shape)
	if err != nil {
		return 0, err
	}
	width := d.Bits()
	if width == 0 {
		return 0, fmt.Errorf("unknown dtype %q", string(d))
	}
	total, ok := mul(nelems, width)
	if !ok {
		return 0, fmt.Errorf("shape %v of %s needs more than 2^63 bits", shape, d)
	}
	if total%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s is %d bits, which is no whole number of bytes", shape, d, total)
	}
	return total / 8, nil
}

// Count is the number of elements of shape: 1 for a 0-d tensor, 0 when a dimension is 0.
func Count(shape []int64) (int64, error) {
	nelems := int64(1)
	for _, dim := range shape {
		if dim < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		var ok bool
		if nelems, ok = mul(nelems, dim); !ok {
			return 0, fmt.Errorf("shape %v has more than 2^63 elements", shape)
		}
	}
	return nelems, nil
}

// mul multiplies non-negative numbers and says whether the product fits.
func mul(a, b int64) (int64, bool) {
	if a == 0 || b == 0 {
		return 0, true
	}
	product := a * b
	return product, product/b == a && product > 0
}
