package tcp

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/strided"
)

// receiver reads answers of one connection: long runs straight into the destination, short ones by way of a buffer.
type receiver struct {
	conn  net.Conn
	stall time.Duration
	clock deadline // of conn
	moved int64    // bytes, by the last read
	job   *job
	buf   *[]byte

	group   []rdma.Segment // gathered for one filling of the buffer
	waiting int64          // bytes of them
}

func (r *receiver) free() {
	if r.buf != nil {
		buffers.Put(r.buf)
		r.buf = nil
	}
}

// receive takes one answer. A *refusal leaves the stream in step; any other error doesn't.
func (r *receiver) receive(c net.Conn, j *job, stall time.Duration) error {
	r.clock.begin()
	r.conn, r.job, r.stall = c, j, stall
	r.group, r.waiting = r.group[:0], 0
	var b [headerBytes]byte
	if err := r.fill(b[:]); err != nil {
		return err
	}
	h := decodeHeader(b)
	if h.id != j.id {
		return j.t.Fail(rdma.ErrProtocol, errOutOfStep)
	}
	if h.status != statusOK {
		if h.nbytes > maxText {
			return j.t.Fail(rdma.ErrProtocol, fmt.Errorf("reason of %d bytes, at most %d", h.nbytes, maxText))
		}
		text, err := readText(c, h.nbytes)
		if err != nil {
			return err
		}
		return &refusal{status: h.status, text: text}
	}
	if h.nbytes != uint64(j.chunk.Nbytes) {
		return j.t.Fail(rdma.ErrProtocol, errOutOfStep)
	}
	if err := r.payload(j.chunk.Segs); err != nil {
		return err
	}
	return r.trailer()
}

func (r *receiver) trailer() error {
	var b [trailerBytes]byte
	if err := r.fill(b[:]); err != nil {
		return err
	}
	st, id := decodeTrailer(b)
	if id != r.job.id {
		return r.job.t.Fail(rdma.ErrProtocol, errOutOfStep)
	}
	if st != statusOK {
		return &refusal{status: st, text: "withdrawn while it was read"}
	}
	return nil
}

// payload takes long segments directly and groups short ones to buffers.
func (r *receiver) payload(segs []rdma.Segment) error {
	for i := range segs {
		s := strided.Compact(strided.DestSide(segs[i]))
		var err error
		switch {
		case s.Run >= directRun:
			if err = r.scatter(); err == nil {
				err = r.runs(&s)
			}
		case s.Nbytes() <= bufferBytes:
			err = r.gather(s)
		default:
			for p := range strided.Pieces(s, bufferBytes) {
				if err = r.gather(p); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
		if r.ends(i + 1) {
			if err := r.scatter(); err != nil {
				return err
			}
			r.job.landed(i + 1)
		}
	}
	return r.scatter()
}

// ends says whether a part of the batch ends with a segment.
func (r *receiver) ends(segs int) bool {
	return r.job.told < len(r.job.parts) && r.job.parts[r.job.told].end == segs
}

// gather adds a piece to those that are received into the buffer together.
func (r *receiver) gather(s rdma.Segment) error {
	n := s.Nbytes()
	if r.waiting+n > bufferBytes {
		if err := r.scatter(); err != nil {
			return err
		}
	}
	r.group, r.waiting = append(r.group, s), r.waiting+n
	return nil
}

// scatter receives what was gathered and puts it into place.
func (r *receiver) scatter() error {
	if r.waiting == 0 {
		return nil
	}
	if r.buf == nil {
		r.buf = buffers.Get().(*[]byte)
	}
	b := (*r.buf)[:r.waiting]
	if err := r.fill(b); err != nil {
		return err
	}
	for i := range r.group {
		b = b[strided.Unpack(r.job.dst, b, &r.group[i]):]
	}
	r.group, r.waiting = r.group[:0], 0
	return nil
}

func (r *receiver) runs(s *rdma.Segment) error {
	for i := range s.N[0] {
		for j := range s.N[1] {
			for k := range s.N[2] {
				off := s.Dst + i*s.DstStride[0] + j*s.DstStride[1] + k*s.DstStride[2]
				if err := r.fill(r.job.dst[off : off+s.Run]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// fill reads all of b. The deadline is renewed first; then it asks whether the transfer is still wanted: see interrupt.
func (r *receiver) fill(b []byte) error {
	for len(b) > 0 {
		if err := r.clock.renew(r.conn.SetReadDeadline, r.stall, r.moved); err != nil {
			return err
		}
		if err := r.job.t.Err(); err != nil {
			return err
		}
		n, err := r.conn.Read(b[:min(len(b), stepBytes)])
		b, r.moved = b[n:], int64(n)
		if err != nil && len(b) > 0 {
			if err == io.EOF { //nolint:errorlint // net.Conn returns it bare
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
