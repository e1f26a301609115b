package proof

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// decoders read one little-endian element as the number that it stands for; float64 holds each exactly.
var decoders = map[safetensors.DType]func([]byte) float64{
	safetensors.F64:        func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) },
	safetensors.F32:        func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) },
	safetensors.F16:        func(b []byte) float64 { return ieee(uint64(binary.LittleEndian.Uint16(b)), 5, 10) },
	safetensors.BF16:       func(b []byte) float64 { return ieee(uint64(binary.LittleEndian.Uint16(b)), 8, 7) },
	safetensors.F8E5M2:     func(b []byte) float64 { return ieee(uint64(b[0]), 5, 2) },
	safetensors.F8E4M3:     e4m3fn,
	safetensors.F8E4M3FNUZ: func(b []byte) float64 { return fnuz(b[0], 4, 3) },
	safetensors.F8E5M2FNUZ: func(b []byte) float64 { return fnuz(b[0], 5, 2) },
}

// encoders write the number nearest to value, ties to even.
var encoders = map[safetensors.DType]func(b []byte, value float64){
	safetensors.F64:  func(b []byte, v float64) { binary.LittleEndian.PutUint64(b, math.Float64bits(v)) },
	safetensors.F32:  func(b []byte, v float64) { binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v))) },
	safetensors.F16:  func(b []byte, v float64) { binary.LittleEndian.PutUint16(b, uint16(round(v, 5, 10))) },
	safetensors.BF16: func(b []byte, v float64) { binary.LittleEndian.PutUint16(b, uint16(round(v, 8, 7))) },
}

// castable says whether the proof knows a conversion. Integers are never converted, and
// nothing is converted to eight bits: what an overflow gives there differs between versions of torch.
func castable(from, to safetensors.DType) error {
	if decoders[from] == nil || encoders[to] == nil {
		return fmt.Errorf("conversion from %s to %s is not defined", from, to)
	}
	return nil
}

// number is (-1)^sign × 2^exponent × (1 + fraction/2^m) for normal numbers, and without the 1 for exponent field 0.
func number(sign, field, fraction uint64, bias, m int) float64 {
	exponent := int(field) - bias // of the leading 1, which numbers with field 0 don't have
	significand := float64(fraction)
	if field == 0 {
		exponent++
	} else {
		significand += float64(uint64(1) << m)
	}
	value := math.Ldexp(significand, exponent-m)
	if sign != 0 {
		return -value
	}
	return value
}

// ieee is the value of a binary interchange format with e exponent and m fraction bits.
func ieee(bits uint64, e, m int) float64 {
	sign, field, fraction := bits>>(e+m), bits>>m&(1<<e-1), bits&(1<<m-1)
	if field == 1<<e-1 {
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(1 - 2*int(sign))
	}
	return number(sign, field, fraction, 1<<(e-1)-1, m)
}

// e4m3fn has no infinities; its largest pattern is NaN.
func e4m3fn(b []byte) float64 {
	if b[0]&0x7f == 0x7f {
		return math.NaN()
	}
	return number(uint64(b[0]>>7), uint64(b[0]>>3&0xf), uint64(b[0]&7), 7, 3)
}

// fnuz formats have no infinities and no negative zero, whose pattern is NaN; the bias is one more than usual.
func fnuz(b byte, e, m int) float64 {
	if b == 0x80 {
		return math.NaN()
	}
	return number(uint64(b>>7), uint64(b)>>m&(1<<e-1), uint64(b)&(1<<m-1), 1<<(e-1), m)
}

// round is the pattern of the number nearest to value in a format with e exponent and m fraction bits.
func round(value float64, e, m int) uint64 {
	sign := uint64(0)
	if math.Signbit(value) {
		sign = 1 << (e + m)
	}
	infinity := uint64(1<<e-1) << m
	magnitude := math.Abs(value)
	switch {
	case math.IsNaN(value):
		return infinity | 1<<(m-1)
	case math.IsInf(value, 0):
		return sign | infinity
	case magnitude == 0:
		return sign
	}
	bias := 1<<(e-1) - 1
	// Scaled so that neighbouring numbers of the format are one apart, the value is rounded to a whole number of steps.
	exponent := max(math.Ilogb(magnitude), 1-bias) // of the interval that value lies in; the lowest is shared with subnormals
	steps := uint64(math.RoundToEven(math.Ldexp(magnitude, m-exponent)))
	// Patterns count on through powers of two: 2^(m+1) steps of one interval are the first number of the next.
	pattern := uint64(exponent+bias-1)<<m + steps
	return sign | min(pattern, infinity)
}

// isNaN says whether one element of a float dtype is a NaN.
func isNaN(dtype safetensors.DType, b []byte) bool {
	read := decoders[dtype]
	return read != nil && math.IsNaN(read(b))
}
