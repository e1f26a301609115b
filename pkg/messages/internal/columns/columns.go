// Package columns holds the two codings that Drydock's wire format packs integers
// and names with. It knows nothing of messages: a caller supplies counts and bounds,
// and gets back slices or a reason.
//
// A delta column is n zigzag varints, each the difference to the value before (the
// first to zero). A plain column is n unsigned varints. A name column is front-coded:
// for each name the bytes that it shares with the one before, the bytes of its own,
// and all own bytes in one text.
//
// Law: what Append wrote, the reader of the same name returns; a reader consumes its
// column to the last byte, or refuses it, so that each list has few encodings and a
// cut column never passes for a short one. A reader allocates in proportion to n,
// never to a number that it found in the column.
package columns

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every refusal of this package. The column was not used.
var ErrMalformed = errors.New("malformed column")

// Integer is what a column may hold.
type Integer interface{ ~int64 | ~uint32 }

// AppendDeltas appends vals as a delta column.
func AppendDeltas[T Integer](dst []byte, vals []T) []byte {
	prev := int64(0)
	for _, v := range vals {
		dst = binary.AppendVarint(dst, int64(v)-prev)
		prev = int64(v)
	}
	return dst
}

// Deltas reads a delta column of n values in [0, limit]; nil when n is 0.
func Deltas[T Integer](b []byte, n int, limit int64) ([]T, error) {
	if err := room(b, n); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, rest(b)
	}
	vals := make([]T, n)
	prev := int64(0)
	for i := 0; i < n; {
		// One-byte steps are nearly all of them: regular layouts repeat their strides.
		// Eight are seen at one glance, and then need no bounds of their own.
		if n-i >= 8 && len(b) >= 8 && binary.NativeEndian.Uint64(b)&highBits == 0 {
			eight := vals[i : i+8 : i+8]
			for j, z := range b[:8] {
				prev += int64(z>>1) ^ -int64(z&1)
				if uint64(prev) > uint64(limit) {
					return nil, outside(i+j, n, limit)
				}
				eight[j] = T(prev)
			}
			b, i = b[8:], i+8
			continue
		}
		step, w := binary.Varint(b)
		if w <= 0 {
			return nil, fmt.Errorf("%w: value %d of %d is cut or too long", ErrMalformed, i, n)
		}
		// The value before is not negative, so that a sum beyond int64 comes out negative,
		// and as an unsigned number beyond every limit.
		prev += step
		if uint64(prev) > uint64(limit) {
			return nil, outside(i, n, limit)
		}
		vals[i] = T(prev)
		b, i = b[w:], i+1
	}
	return vals, rest(b)
}

// highBits of eight varint bytes are clear when each is a whole number.
const highBits = 0x8080808080808080

func outside(i, n int, limit int64) error {
	return fmt.Errorf("%w: value %d of %d is outside [0, %d]", ErrMalformed, i, n, limit)
}

// AppendPlain appends vals, none of them negative, as a plain column.
func AppendPlain[T Integer](dst []byte, vals []T) []byte {
	for _, v := range vals {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	return dst
}

// Plain reads a plain column of n values in [0, limit].
func Plain[T Integer](b []byte, n int, limit int64) ([]T, error) {
	if err := room(b, n); err != nil {
		return nil, err
	}
	vals := make([]T, n)
	for i := range vals {
		v, w := binary.Uvarint(b)
		if w <= 0 {
			return nil, fmt.Errorf("%w: value %d of %d is cut or too long", ErrMalformed, i, n)
		}
		if v > uint64(limit) {
			return nil, fmt.Errorf("%w: value %d of %d is %d, limit %d", ErrMalformed, i, n, v, limit)
		}
		vals[i], b = T(v), b[w:]
	}
	return vals, rest(b)
}

// room refuses a column that is too short for n values before anything is allocated:
// each value takes a byte at least.
func room(b []byte, n int) error {
	if n < 0 || n > len(b) {
		return fmt.Errorf("%w: %d bytes can't hold %d values", ErrMalformed, len(b), n)
	}
	return nil
}

func rest(b []byte) error {
	if len(b) != 0 {
		return fmt.Errorf("%w: %d bytes left over", ErrMalformed, len(b))
	}
	return nil
}
