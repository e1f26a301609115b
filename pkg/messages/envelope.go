package messages

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/vmihailenco/msgpack/v5"
)

// compressAbove is where zstd begins to pay for its frame, in bytes.
const compressAbove = 256

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// Both coders are stateless between EncodeAll and DecodeAll calls, and expensive to make.
var (
	zstdWriter = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderCRC(false))
	})
	zstdReader = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxExpanded))
	})
)

// pack writes v as a msgpack map with the shortest integers, so that equal values
// have equal bytes in every implementation.
func pack(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode msgpack: %w", err)
	}
	return buf.Bytes(), nil
}

// squeeze compresses a packed payload when that makes it smaller. A payload so regular
// that readers would take it for a bomb stays as it is: half a kilobyte of zstd can hold
// the layout of a hundred thousand equal shards.
func squeeze(packed []byte) ([]byte, error) {
	if len(packed) <= compressAbove {
		return packed, nil
	}
	w, err := zstdWriter()
	if err != nil {
		return nil, fmt.Errorf("make zstd encoder: %w", err)
	}
	out := w.EncodeAll(packed, make([]byte, 0, len(packed)/2))
	if len(out) >= len(packed) || int64(len(packed)) > expansion(len(out)) {
		return packed, nil
	}
	return out, nil
}

// expansion is how many bytes a compressed payload of nbytes may become.
func expansion(nbytes int) int64 { return min(MaxExpanded, MinExpanded+MaxRatio*int64(nbytes)) }

// fresh gives memory for an expanded payload that lives as long as whoever refers to it.
func fresh(nbytes int) []byte { return make([]byte, nbytes) }

// expand undoes squeeze, into memory that room gives. A msgpack map never begins with
// zstd's magic number, so a payload says itself whether it is compressed.
func expand(schema string, b []byte, room func(nbytes int) []byte) ([]byte, error) {
	if !bytes.HasPrefix(b, zstdMagic) {
		return b, nil
	}
	var h zstd.Header
	if err := h.Decode(b); err != nil {
		return nil, &FormatError{Schema: schema, Reason: "zstd header: " + err.Error(), Kind: ErrMalformed}
	}
	if !h.HasFCS {
		return nil, &FormatError{Schema: schema, Reason: "zstd frame without content size", Kind: ErrMalformed}
	}
	bound := expansion(len(b))
	if h.FrameContentSize > uint64(bound) {
		return nil, &LimitError{Schema: schema, Limit: "expanded bytes", Have: int64(min(h.FrameContentSize, 1<<62)), Max: bound}
	}
	r, err := zstdReader()
	if err != nil {
		return nil, fmt.Errorf("make zstd decoder: %w", err)
	}
	// The capacity is the limit: frames appended to the first one can't grow past it.
	out, err := r.DecodeAll(b, room(int(h.FrameContentSize))[:0:h.FrameContentSize])
	if err != nil {
		return nil, &FormatError{Schema: schema, Reason: "zstd: " + err.Error(), Kind: ErrMalformed}
	}
	if uint64(len(out)) != h.FrameContentSize {
		return nil, &FormatError{Schema: schema, Reason: "more than one zstd frame", Kind: ErrMalformed}
	}
	return out, nil
}

// unpack decodes a payload into v, which must hold only scalars, byte columns and
// short lists: what it allocates is then bounded by the payload.
func unpack(schema string, b []byte, v any) error {
	plain, err := expand(schema, b, fresh)
	if err != nil {
		return err
	}
	return unpackPlain(schema, plain, v)
}

func unpackPlain(schema string, plain []byte, v any) error {
	if err := scan(plain); err != nil {
		return &FormatError{Schema: schema, Reason: err.Error(), Kind: ErrMalformed}
	}
	if n, ok := v.(nested); ok {
		return bind(schema, plain, n.fields())
	}
	if err := msgpack.Unmarshal(plain, v); err != nil {
		return &FormatError{Schema: schema, Reason: err.Error(), Kind: ErrMalformed}
	}
	return nil
}

// checkSchema compares the schema that a payload declares with the wanted one.
func checkSchema(want, have string) error {
	if have == want {
		return nil
	}
	return &FormatError{Schema: want, Field: "schema", Reason: fmt.Sprintf("is %.64q", have), Kind: ErrSchema}
}

func malformed(schema, field, format string, args ...any) error {
	return &FormatError{Schema: schema, Field: field, Reason: fmt.Sprintf(format, args...), Kind: ErrMalformed}
}

func limited(schema, what string, have, most int64) error {
	if have <= most {
		return nil
	}
	return &LimitError{Schema: schema, Limit: what, Have: have, Max: most}
}

// isBadPayload says whether err is the payload's own fault, so that asking again
// gives the same answer.
func isBadPayload(err error) bool {
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrLimit) || errors.Is(err, ErrSchema)
}
