package cast

import (
	"encoding/binary"
	"fmt"
	"math"
)

// OverflowError names the first value that a cast to float8_e4m3fn could not hold under the rule Fails.
// Elements before it have been written.
type OverflowError struct {
	Index int64 // element of the row
	Value float32
}

// Error names the element and its value, and what to choose.
func (e *OverflowError) Error() string {
	return fmt.Sprintf("element %d: %g is beyond float8_e4m3fn, whose overflow differs between torch versions: choose a rule", e.Index, e.Value)
}

// Convert casts n elements. Element i is read at src[i*srcStride] and written at dst[i*dstStride], strides
// in bytes; both slices must hold them. dst and src must not overlap.
func Convert(dst, src []byte, n, dstStride, srcStride int64, from, to *Format, rule Overflow) error {
	switch {
	case from == BF16 && to == F32:
		for i := range n {
			binary.LittleEndian.PutUint32(dst[i*dstStride:], uint32(binary.LittleEndian.Uint16(src[i*srcStride:]))<<16)
		}
		return nil
	case from == F32 && to == BF16:
		narrowBF16(dst, src, n, dstStride, srcStride)
		return nil
	case from.bits == 8:
		return convert8(dst, src, n, dstStride, srcStride, from, to, rule)
	}
	for i := range n {
		x, over := to.cast(from, load(src[i*srcStride:], from.bits), rule)
		if over {
			return &OverflowError{i, value(from, src[i*srcStride:])}
		}
		store(dst[i*dstStride:], to.bits, x)
	}
	return nil
}

// narrowBF16 is the common narrowing, worth its own loop: add half of the last kept place, ties to even.
func narrowBF16(dst, src []byte, n, dstStride, srcStride int64) {
	for i := range n {
		u := binary.LittleEndian.Uint32(src[i*srcStride:])
		x := uint16((u + 0x7FFF + u>>16&1) >> 16)
		if u&0x7FFFFFFF > 0x7F800000 {
			x = uint16(u>>31<<15) | uint16(BF16.nan)
		}
		binary.LittleEndian.PutUint16(dst[i*dstStride:], x)
	}
}

// convert8 looks up what each of the 256 patterns becomes: the table costs as much as 256 elements do, and 8-bit
// weights come in millions. Whether a value overflows is looked up too, so that Fails names the first that occurs.
func convert8(dst, src []byte, n, dstStride, srcStride int64, from, to *Format, rule Overflow) error {
	var table [256]uint64
	var over [256]bool
	for x := range table {
		table[x], over[x] = to.cast(from, uint64(x), rule)
	}
	for i := range n {
		x := src[i*srcStride]
		if over[x] {
			return &OverflowError{i, math.Float32frombits(from.widen(uint64(x)))}
		}
		store(dst[i*dstStride:], to.bits, table[x])
	}
	return nil
}

// cast converts one pattern, through float32.
func (f *Format) cast(from *Format, x uint64, rule Overflow) (uint64, bool) {
	if from == f {
		return x, false
	}
	var u uint32
	if from == F64 {
		u = single(x)
	} else {
		u = from.widen(x)
	}
	switch f {
	case F32:
		return uint64(u), false
	case F64:
		return double(u), false
	}
	return f.narrow(u, rule)
}

// single rounds a float64 to float32: the first of the two roundings on the way to narrower types.
func single(x uint64) uint32 {
	if x&^(1<<63) > F64.inf() {
		return uint32(x>>63)<<31 | uint32(F32.nan)
	}
	return math.Float32bits(float32(math.Float64frombits(x)))
}

// double widens a float32; all values are kept.
func double(u uint32) uint64 {
	if uint64(u&^(1<<31)) > F32.inf() {
		return uint64(u>>31)<<63 | F64.nan
	}
	return math.Float64bits(float64(math.Float32frombits(u)))
}

// value returns what an element stands for, for error messages.
func value(f *Format, b []byte) float32 {
	x := load(b, f.bits)
	if f == F64 {
		return float32(math.Float64frombits(x))
	}
	return math.Float32frombits(f.widen(x))
}

// load reads a little-endian element.
func load(b []byte, bits int) uint64 {
	switch bits {
	case 8:
		return uint64(b[0])
	case 16:
		return uint64(binary.LittleEndian.Uint16(b))
	case 32:
		return uint64(binary.LittleEndian.Uint32(b))
	default:
		return binary.LittleEndian.Uint64(b)
	}
}

// store writes a little-endian element.
func store(b []byte, bits int, x uint64) {
	switch bits {
	case 8:
		b[0] = byte(x)
	case 16:
		binary.LittleEndian.PutUint16(b, uint16(x))
	case 32:
		binary.LittleEndian.PutUint32(b, uint32(x))
	default:
		binary.LittleEndian.PutUint64(b, x)
	}
}

// Encode returns the pattern of a float64 constant in the format, rounded as torch's fill_ rounds. holds is
// false for values beyond the format's range: there torch raises, writes infinity or the largest value, by type
// and version.
func Encode(v float64, to *Format) (pattern []byte, holds bool) {
	x, over := to.cast(F64, math.Float64bits(v), Fails)
	pattern = make([]byte, to.bits/8)
	store(pattern, to.bits, x)
	back := v
	if to != F64 {
		back = float64(value(to, pattern))
	}
	beyond := math.IsInf(back, 0) != math.IsInf(v, 0) || math.IsNaN(back) != math.IsNaN(v)
	return pattern, !over && !beyond
}
