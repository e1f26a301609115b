package plan

import "fmt"

// DType is the type of a tensor's elements. The numeric codes travel on the wire.
type DType uint8

// The element types, by their safetensors names.
const (
	Invalid DType = iota
	Bool
	U8
	I8
	I16
	U16
	I32
	U32
	I64
	U64
	F16
	BF16
	F32
	F64
	F8E4M3     // torch's float8_e4m3fn
	F8E5M2     // torch's float8_e5m2
	F8E4M3FNUZ // finite, no negative zero
	F8E5M2FNUZ // finite, no negative zero
	F8E8M0     // exponents only: never cast
	F4         // two to a byte: opaque, travels as U8
	F6E2M3     // opaque, travels as U8
	F6E3M2     // opaque, travels as U8
	C64
	numDTypes
)

// dtypes holds each type's safetensors name, torch name and bytes per element (0: not whole bytes).
var dtypes = [numDTypes]struct {
	name, torch string
	nbytes      int64
}{
	Invalid:    {"invalid", "", 0},
	Bool:       {"BOOL", "bool", 1},
	U8:         {"U8", "uint8", 1},
	I8:         {"I8", "int8", 1},
	I16:        {"I16", "int16", 2},
	U16:        {"U16", "uint16", 2},
	I32:        {"I32", "int32", 4},
	U32:        {"U32", "uint32", 4},
	I64:        {"I64", "int64", 8},
	U64:        {"U64", "uint64", 8},
	F16:        {"F16", "float16", 2},
	BF16:       {"BF16", "bfloat16", 2},
	F32:        {"F32", "float32", 4},
	F64:        {"F64", "float64", 8},
	F8E4M3:     {"F8_E4M3", "float8_e4m3fn", 1},
	F8E5M2:     {"F8_E5M2", "float8_e5m2", 1},
	F8E4M3FNUZ: {"F8_E4M3FNUZ", "float8_e4m3fnuz", 1},
	F8E5M2FNUZ: {"F8_E5M2FNUZ", "float8_e5m2fnuz", 1},
	F8E8M0:     {"F8_E8M0", "float8_e8m0fnu", 1},
	F4:         {"F4", "float4_e2m1fn_x2", 0},
	F6E2M3:     {"F6_E2M3", "float6_e2m3fn", 0},
	F6E3M2:     {"F6_E3M2", "float6_e3m2fn", 0},
	C64:        {"C64", "complex64", 8},
}

// dtypeByName holds all names that ParseDType accepts: those of the table, and torch's shorthands.
var dtypeByName = func() map[string]DType {
	m := map[string]DType{"half": F16, "float": F32, "double": F64, "long": I64, "int": I32, "short": I16}
	for d := Bool; d < numDTypes; d++ {
		m[dtypes[d].name] = d
		m[dtypes[d].torch] = d
	}
	return m
}()

// ParseDType accepts a safetensors name ("BF16") or a torch name ("bfloat16", "torch.bfloat16").
func ParseDType(s string) (DType, error) {
	name := s
	if len(name) > 6 && name[:6] == "torch." {
		name = name[6:]
	}
	if d, ok := dtypeByName[name]; ok {
		return d, nil
	}
	return Invalid, fmt.Errorf("plan: unknown dtype %q", s)
}

// Size returns bytes per element. It is 0 for types that are not whole bytes (F4, F6): their owner
// publishes them as U8.
func (d DType) Size() int64 {
	if d >= numDTypes {
		return 0
	}
	return dtypes[d].nbytes
}

// String returns the safetensors name.
func (d DType) String() string {
	if d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}
