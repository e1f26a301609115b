// Package cast converts floating-point elements as torch's Tensor.to does.
//
// Every non-NaN result equals torch's, on all of its code paths: everything goes through float32 (float64
// into a 16- or 8-bit type is rounded twice), rounding is to nearest with ties to even, subnormals and
// negative zero are kept where the type has them. A NaN stays a NaN; its bits differ between torch's own
// code paths, so one canonical pattern is written for each type. Integers and booleans are no business
// of this package: they are never cast.
//
// A Format describes a type; Convert moves a row of elements from one to another.
package cast

import "math"

// Format describes a floating-point type of at most 64 bits.
type Format struct {
	Name     string // torch's
	bits     int
	mantissa int
	bias     int
	nan      uint64 // the canonical NaN, without sign
	special  special
}

// special says what a format's last exponent means.
type special uint8

const (
	ieee   special = iota // infinities and NaNs
	finite                // float8_e4m3fn: one NaN pattern a sign, no infinities
	fnuz                  // 0x80 is the only NaN; no infinities, no negative zero
)

// The formats that are cast.
var (
	F64        = &Format{"float64", 64, 52, 1023, 0x7FF8000000000000, ieee}
	F32        = &Format{"float32", 32, 23, 127, 0x7FC00000, ieee}
	F16        = &Format{"float16", 16, 10, 15, 0x7E00, ieee}
	BF16       = &Format{"bfloat16", 16, 7, 127, 0x7FC0, ieee}
	F8E4M3     = &Format{"float8_e4m3fn", 8, 3, 7, 0x7F, finite}
	F8E5M2     = &Format{"float8_e5m2", 8, 2, 15, 0x7E, ieee}
	F8E4M3FNUZ = &Format{"float8_e4m3fnuz", 8, 3, 8, 0x80, fnuz}
	F8E5M2FNUZ = &Format{"float8_e5m2fnuz", 8, 2, 16, 0x80, fnuz}
)

// Size returns bytes per element.
func (f *Format) Size() int64 { return int64(f.bits / 8) }

// Lossless reports whether every value of from comes back from to. It decides what is called widening.
func Lossless(from, to *Format) bool {
	if from == to {
		return true
	}
	switch from.bits {
	case 8:
		return to.bits > 8
	case 16:
		return to.bits > 16
	default:
		return from.bits < to.bits
	}
}

// Overflow says what a cast to float8_e4m3fn makes of values beyond its range. The other formats have one
// answer: infinity where they have it, else NaN.
type Overflow uint8

// The overflow rules.
const (
	Fails     Overflow = iota // Convert fails: torch's answer depends on its version
	Saturates                 // ±448, infinity included: torch 2.13 on
	ToNaN                     // NaN: torch up to 2.12
)

// widen returns the float32 that a pattern of at most 32 bits stands for.
func (f *Format) widen(x uint64) uint32 {
	if f == F32 {
		return uint32(x)
	}
	sign := uint32(x>>(f.bits-1)) << 31
	body := x &^ (1 << (f.bits - 1))
	if f.isNaN(x, body) {
		return sign | uint32(F32.nan)
	}
	exp, man := int(body>>f.mantissa), body&(1<<f.mantissa-1)
	if f.special == ieee && exp == 1<<(f.bits-1-f.mantissa)-1 {
		return sign | 0x7F800000
	}
	v := math.Float32bits(float32(math.Ldexp(float64(man), 1-f.bias-f.mantissa)))
	if exp > 0 {
		v = math.Float32bits(float32(math.Ldexp(float64(man|1<<f.mantissa), exp-f.bias-f.mantissa)))
	}
	return sign | v
}

// isNaN judges a pattern; body is the pattern without its sign.
func (f *Format) isNaN(x, body uint64) bool {
	switch f.special {
	case fnuz:
		return x == f.nan
	case finite:
		return body == f.nan
	default:
		return body > f.inf()
	}
}

// inf returns the pattern of positive infinity: the first one past the finite values.
func (f *Format) inf() uint64 { return (1<<(f.bits-1-f.mantissa) - 1) << f.mantissa }

// narrow rounds a float32 to the format, of at most 16 bits. over tells that the value was beyond the
// range of a format whose answer depends on the rule.
func (f *Format) narrow(u uint32, rule Overflow) (x uint64, over bool) {
	sign, body := uint64(u>>31)<<(f.bits-1), u&0x7FFFFFFF
	if body > 0x7F800000 {
		if f.special == fnuz {
			return f.nan, false
		}
		return sign | f.nan, false
	}
	x = f.round(body)
	switch f.special {
	case ieee:
		return sign | min(x, f.inf()), false
	case fnuz:
		if x == 0 {
			return 0, false
		}
		if x >= 1<<(f.bits-1) {
			return f.nan, false
		}
		return sign | x, false
	}
	if x < f.nan {
		return sign | x, false
	}
	if rule == Saturates {
		return sign | (f.nan - 1), false
	}
	return sign | f.nan, rule == Fails
}

// round returns the pattern nearest to a non-negative float32, ties to even; patterns beyond the format's
// last one are for the caller to judge.
func (f *Format) round(body uint32) uint64 {
	exp, man := int(body>>23)-127, uint64(body&0x7FFFFF)
	if exp == -127 {
		exp++
	} else {
		man |= 1 << 23
	}
	if exp == 128 {
		return 1 << 62
	}
	lowest := 1 - f.bias
	shift := 23 - f.mantissa
	base := uint64(0)
	if exp < lowest {
		shift += lowest - exp
	} else {
		base = uint64(exp-lowest) << f.mantissa
	}
	if shift > 25 {
		return 0
	}
	q, rest, half := man>>shift, man&(1<<shift-1), uint64(1)<<(shift-1)
	if rest > half || rest == half && q&1 == 1 {
		q++
	}
	return base + q
}
