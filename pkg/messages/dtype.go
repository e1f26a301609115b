package messages

import "fmt"

// DType is the type of a source's elements as a number on the wire. Numbers are
// never reused; a reader that meets one it does not know refuses the layout.
type DType uint8

// The element types of wire version 1. F4 and the F6 types are smaller than a
// byte: publishers box them as U8 and never announce them as such.
const (
	Invalid    DType = iota
	Bool             // 1 byte, 0 or 1
	U8               // 1 byte
	I8               // 1 byte
	I16              // 2 bytes
	U16              // 2 bytes
	I32              // 4 bytes
	U32              // 4 bytes
	I64              // 8 bytes
	U64              // 8 bytes
	F16              // 2 bytes, IEEE 754 half
	BF16             // 2 bytes, bfloat16
	F32              // 4 bytes
	F64              // 8 bytes
	F8E4M3           // 1 byte, torch float8_e4m3fn
	F8E5M2           // 1 byte, torch float8_e5m2
	F8E4M3FNUZ       // 1 byte, torch float8_e4m3fnuz
	F8E5M2FNUZ       // 1 byte, torch float8_e5m2fnuz
	F8E8M0           // 1 byte, torch float8_e8m0fnu
	F4               // half a byte
	F6E2M3           // six bits
	F6E3M2           // six bits
	C64              // 8 bytes, two F32
	endDType
)

// dtypeTable holds the safetensors name, the torch name and the bytes per element
// (0: smaller than a byte) of each type, in wire order.
var dtypeTable = [endDType]struct {
	name, torch string
	nbytes      int64
}{
	{"INVALID", "", 0},
	{"BOOL", "bool", 1},
	{"U8", "uint8", 1},
	{"I8", "int8", 1},
	{"I16", "int16", 2},
	{"U16", "uint16", 2},
	{"I32", "int32", 4},
	{"U32", "uint32", 4},
	{"I64", "int64", 8},
	{"U64", "uint64", 8},
	{"F16", "float16", 2},
	{"BF16", "bfloat16", 2},
	{"F32", "float32", 4},
	{"F64", "float64", 8},
	{"F8_E4M3", "float8_e4m3fn", 1},
	{"F8_E5M2", "float8_e5m2", 1},
	{"F8_E4M3FNUZ", "float8_e4m3fnuz", 1},
	{"F8_E5M2FNUZ", "float8_e5m2fnuz", 1},
	{"F8_E8M0", "float8_e8m0fnu", 1},
	{"F4", "float4_e2m1fn_x2", 0},
	{"F6_E2M3", "", 0},
	{"F6_E3M2", "", 0},
	{"C64", "complex64", 8},
}

// ParseDType reads a safetensors name ("BF16") or a torch name ("bfloat16").
func ParseDType(s string) (DType, error) {
	for d := Bool; d < endDType; d++ {
		if row := dtypeTable[d]; s != "" && (s == row.name || s == row.torch) {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("parse dtype: %q is not a known element type", s)
}

// Size is the number of bytes per element; 0 for Invalid, unknown numbers and
// types smaller than a byte.
func (d DType) Size() int64 {
	if d >= endDType {
		return 0
	}
	return dtypeTable[d].nbytes
}

// String is the safetensors name.
func (d DType) String() string {
	if d >= endDType {
		return fmt.Sprintf("DTYPE(%d)", uint8(d))
	}
	return dtypeTable[d].name
}
