package messages

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// fields says where the values of a msgpack map go, by key. Keys that are not in it
// are skipped, as the version rule wants.
type fields map[string]any

// nested is a value that is a map of its own.
type nested interface{ fields() fields }

// optional is a nested value that may be missing.
type optional[T any] struct{ to **T }

func (o optional[T]) fields() fields {
	*o.to = new(T)
	n, _ := any(*o.to).(nested)
	return n.fields()
}

// bind reads a msgpack map that scan has found sound. Byte columns are not copied: they
// are views of b, which is what makes it worth having beside the library, whose
// decoder copies each of them. All else is left to the library.
func bind(schema string, b []byte, to fields) error {
	head, pos := item{}, 0
	if len(b) > 0 {
		head, _ = next(b, &pos) // scan has read it without error
	}
	if !head.isMap {
		return &FormatError{Schema: schema, Reason: "payload is not a msgpack map", Kind: ErrMalformed}
	}
	for range head.children / 2 {
		key := textOf(take(b, &pos))
		raw := take(b, &pos)
		if dst, known := to[key]; known {
			if err := bindValue(schema, raw, dst); err != nil {
				return &FormatError{Schema: schema, Field: key, Reason: err.Error(), Kind: ErrMalformed}
			}
		}
	}
	return nil
}

func bindValue(schema string, raw []byte, dst any) error {
	if raw[0] == msgpackNil {
		return nil // as if the key were not there
	}
	switch dst := dst.(type) {
	case *[]byte:
		pos := 0
		head, err := next(raw, &pos)
		if err != nil || head.isMap || head.children > 0 || pos != len(raw) || !isText(raw[0]) {
			return fmt.Errorf("is no byte string")
		}
		*dst = payloadOf(raw)
		return nil
	case nested:
		return bind(schema, raw, dst.fields())
	default:
		return msgpack.Unmarshal(raw, dst)
	}
}

const msgpackNil = 0xc0

// take steps over one whole value, children and all, and returns its bytes.
func take(b []byte, pos *int) []byte {
	start := *pos
	for left := uint64(1); left > 0; left-- {
		it, err := next(b, pos)
		if err != nil {
			return b[start:start:start] // can't be: scan has read it
		}
		left += it.children
	}
	return b[start:*pos:*pos]
}

// isText says whether a value with this first byte is a string or a byte string.
func isText(c byte) bool {
	return c >= 0xa0 && c < 0xc0 || c >= 0xc4 && c <= 0xc6 || c >= 0xd9 && c <= 0xdb
}

// payloadOf is a string or byte string without its head.
func payloadOf(raw []byte) []byte {
	head := 1
	if c := raw[0]; c >= 0xc4 {
		head += heads[c-0xc4].width
	}
	return raw[head:]
}

func textOf(raw []byte) string { return string(payloadOf(raw)) }
