package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

const (
	magic        = "DRYDOCK1"
	maxHandshake = 1 << 10   // bytes of a hello or welcome
	maxRequest   = 128 << 10 // bytes of a request
	maxSegments  = 1024      // of a request
	maxPayload   = 16 << 20  // bytes that one request may ask for
	maxText      = 512       // bytes of a refusal's reason
	maxName      = 128       // bytes of an incarnation or a lease
	maxAddresses = 16        // of an endpoint
)

// status is the answer of a server.
type status uint8

const (
	statusOK      status = 0
	statusStale   status = 1 // another incarnation
	statusRefused status = 2 // no capability, no lease, outside, withdrawn, over a limit
)

func (s status) kind() rdma.Kind {
	switch s {
	case statusStale:
		return rdma.ErrStale
	case statusRefused:
		return rdma.ErrRefused
	default:
		return rdma.ErrProtocol
	}
}

// reader takes fields off a frame. The first failure sticks and empties the rest.
type reader struct {
	b   []byte
	err error
}

var errShort = errors.New("frame too short")

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail(errShort)
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// length is a uvarint that fits an int64.
func (r *reader) length() int64 {
	v := r.uvarint()
	if v > math.MaxInt64 {
		r.fail(fmt.Errorf("number %d overflows", v))
		return 0
	}
	return int64(v)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) text(limit int) string {
	n := r.uvarint()
	if n > uint64(limit) {
		r.fail(fmt.Errorf("string of %d bytes, at most %d", n, limit))
		return ""
	}
	return string(r.take(int(n)))
}

func (r *reader) array(dst []byte) { copy(dst, r.take(len(dst))) }

// end is the frame's verdict: all fields there, and nothing behind them.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return fmt.Errorf("%d bytes behind the frame's end", len(r.b))
	}
	return r.err
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// hello opens a reader's side.
type hello struct {
	proof              [32]byte
	nonce              [16]byte
	incarnation, lease string
}

func (h *hello) encode() []byte {
	b := append(h.proof[:], h.nonce[:]...)
	return appendText(appendText(b, h.incarnation), h.lease)
}

func decodeHello(b []byte) (hello, error) {
	var h hello
	r := reader{b: b}
	r.array(h.proof[:])
	r.array(h.nonce[:])
	h.incarnation = r.text(maxName)
	h.lease = r.text(maxName)
	return h, r.end()
}

// welcome answers a hello.
type welcome struct {
	status      status
	proof       [32]byte
	text        string
	maxBytes    int64
	maxSegments int64
}

func (w *welcome) encode() []byte {
	b := append([]byte{byte(w.status)}, w.proof[:]...)
	b = appendText(b, clip(w.text))
	b = binary.AppendUvarint(b, uint64(w.maxBytes))
	return binary.AppendUvarint(b, uint64(w.maxSegments))
}

func decodeWelcome(b []byte) (welcome, error) {
	var w welcome
	r := reader{b: b}
	w.status = status(r.u8())
	r.array(w.proof[:])
	w.text = r.text(maxText)
	w.maxBytes, w.maxSegments = r.length(), r.length()
	if w.status == statusOK && (w.maxBytes < 1 || w.maxSegments < 1) {
		r.fail(fmt.Errorf("limits of %d bytes, %d segments", w.maxBytes, w.maxSegments))
	}
	return w, r.end()
}

func clip(s string) string { return s[:min(len(s), maxText)] }

// request asks for segments; only their source sides travel.
type request struct {
	id   uint64
	segs []rdma.Segment
}

// appendRequest encodes a request behind b, without its length.
func appendRequest(b []byte, id uint64, segs []rdma.Segment) []byte {
	b = binary.AppendUvarint(b, id)
	b = binary.AppendUvarint(b, uint64(len(segs)))
	for i := range segs {
		b = appendSegment(b, &segs[i])
	}
	return b
}

func appendSegment(b []byte, s *rdma.Segment) []byte {
	b = binary.AppendUvarint(b, uint64(s.Region))
	b = binary.AppendUvarint(b, uint64(s.Src))
	b = binary.AppendUvarint(b, uint64(s.Run))
	first := 0
	for first < rdma.MaxRank && s.N[first] == 1 {
		first++
	}
	b = binary.AppendUvarint(b, uint64(rdma.MaxRank-first))
	for d := first; d < rdma.MaxRank; d++ {
		b = binary.AppendUvarint(b, uint64(s.N[d]))
		b = binary.AppendVarint(b, s.SrcStride[d])
	}
	return b
}

// decode reuses the request's segments.
func (q *request) decode(b []byte) error {
	r := reader{b: b}
	q.id = r.uvarint()
	n := r.uvarint()
	if n > maxSegments {
		return fmt.Errorf("request of %d segments, at most %d", n, maxSegments)
	}
	q.segs = q.segs[:0]
	for range n {
		q.segs = append(q.segs, r.segment())
	}
	return r.end()
}

func (r *reader) segment() rdma.Segment {
	s := rdma.Segment{N: [3]int64{1, 1, 1}}
	region := r.uvarint()
	if region > math.MaxUint32 {
		r.fail(fmt.Errorf("region %d", region))
	}
	s.Region, s.Src, s.Run = uint32(region), r.length(), r.length()
	outer := r.uvarint()
	if outer > rdma.MaxRank {
		r.fail(fmt.Errorf("%d outer dimensions, at most %d", outer, rdma.MaxRank))
		return s
	}
	for d := rdma.MaxRank - int(outer); d < rdma.MaxRank; d++ {
		s.N[d], s.SrcStride[d] = r.length(), r.varint()
	}
	return s
}

const (
	headerBytes  = 1 + 8 + 8
	trailerBytes = 1 + 8
)

// header precedes a response's payload.
type header struct {
	status status
	id     uint64
	nbytes uint64
}

func (h header) append(b []byte) []byte {
	b = append(b, byte(h.status))
	b = binary.LittleEndian.AppendUint64(b, h.id)
	return binary.LittleEndian.AppendUint64(b, h.nbytes)
}

func decodeHeader(b [headerBytes]byte) header {
	return header{status: status(b[0]), id: binary.LittleEndian.Uint64(b[1:]), nbytes: binary.LittleEndian.Uint64(b[9:])}
}

func appendTrailer(b []byte, s status, id uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, byte(s)), id)
}

func decodeTrailer(b [trailerBytes]byte) (status, uint64) {
	return status(b[0]), binary.LittleEndian.Uint64(b[1:])
}
