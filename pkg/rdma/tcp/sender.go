package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/strided"
)

const (
	bufferBytes = 256 << 10 // of packing and unpacking
	directRun   = 64 << 10  // runs from here on bypass the buffer
	stepBytes   = 1 << 20   // of one write or read between two renewals of the deadline
)

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferBytes); return &b }}

// sender writes a response: small things gather in a buffer, long runs go straight from the mapping.
type sender struct {
	conn  net.Conn
	raw   *net.TCPConn // nil: no sendfile
	stall time.Duration
	clock deadline
	buf   *[]byte
	n     int // bytes gathered
}

func (o *sender) start(h header) {
	o.clock.begin()
	o.buffered(h.append(nil))
}

// buffered gathers a few bytes; the buffer is flushed early enough to have room for every header and trailer.
func (o *sender) buffered(b []byte) {
	if o.buf == nil {
		o.buf = buffers.Get().(*[]byte)
	}
	o.n += copy((*o.buf)[o.n:], b)
}

func (o *sender) free() {
	if o.buf != nil {
		buffers.Put(o.buf)
		o.buf = nil
	}
}

// roomForEnds stays free behind packed bytes, for a trailer, the next header or a text.
const roomForEnds = 1 << 10

func (o *sender) flush() error {
	if o.n == 0 {
		return nil
	}
	err := o.write((*o.buf)[:o.n])
	o.n = 0
	return err
}

// segment sends one segment's bytes.
func (o *sender) segment(m *rdma.Memory, s *rdma.Segment) error {
	c := strided.Compact(strided.SourceSide(*s))
	if c.Run >= directRun {
		return o.runs(m, &c)
	}
	for p := range strided.Pieces(c, bufferBytes-2*roomForEnds) {
		if int64(o.n)+p.Nbytes() > bufferBytes-roomForEnds {
			if err := o.flush(); err != nil {
				return err
			}
		}
		o.n += int(strided.Pack((*o.buf)[o.n:], m.Bytes(), &p))
	}
	return nil
}

// runs sends long runs one by one.
func (o *sender) runs(m *rdma.Memory, s *rdma.Segment) error {
	for i := range s.N[0] {
		for j := range s.N[1] {
			for k := range s.N[2] {
				off := s.Src + i*s.SrcStride[0] + j*s.SrcStride[1] + k*s.SrcStride[2]
				if err := o.direct(m, off, s.Run); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (o *sender) direct(m *rdma.Memory, off, nbytes int64) error {
	if err := o.flush(); err != nil {
		return err
	}
	if o.raw == nil || m.FD() < 0 {
		return o.write(m.Bytes()[off : off+nbytes])
	}
	return o.sendfile(m.FD(), off, nbytes)
}

// write renews the deadline with each step, so that progress, not size, decides.
func (o *sender) write(b []byte) error {
	var n int
	for len(b) > 0 {
		err := o.clock.renew(o.conn.SetWriteDeadline, o.stall, int64(n))
		if err != nil {
			return err
		}
		n, err = o.conn.Write(b[:min(len(b), stepBytes)])
		if err != nil && (n < leastMoved || o.raw == nil || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return err // over TLS a write that was cut short can't be taken up again
		}
		b = b[n:]
	}
	return nil
}

// sendfile hands pages of the file behind a mapping to the socket; they are never copied into the process.
func (o *sender) sendfile(fd int, off, nbytes int64) error {
	rc, err := o.raw.SyscallConn()
	if err != nil {
		return err
	}
	end := off + nbytes
	var n int
	for off < end {
		if err := o.clock.renew(o.conn.SetWriteDeadline, o.stall, int64(n)); err != nil {
			return err
		}
		var sysErr error
		err := rc.Write(func(sock uintptr) bool {
			n, sysErr = unix.Sendfile(int(sock), fd, &off, int(min(end-off, stepBytes)))
			return !errors.Is(sysErr, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return err
		case errors.Is(sysErr, unix.EINTR):
			n = 0
		case sysErr != nil:
			return fmt.Errorf("send from memory: %w", sysErr)
		case n == 0:
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}

// deadline renews a connection's deadline, but not at every call: setting it costs as much as a small read. And only for
// progress that deserves the name, or a peer that takes a byte now and then would hold a connection for ever.
type deadline struct {
	set   time.Time
	moved int64 // bytes since then
}

// leastMoved is how many bytes must move for another stall's time to be given: 6 kB/s at the default.
const leastMoved = 64 << 10

// begin makes ready for an answer: the time between answers counts for nothing.
func (d *deadline) begin() { *d = deadline{} }

// renew sets the deadline a stall from now if an eighth of one has passed since it was last set, and enough has moved. It is
// told how many bytes have moved since it was last called.
func (d *deadline) renew(set func(time.Time) error, stall time.Duration, moved int64) error {
	d.moved += moved
	now := time.Now()
	if !d.set.IsZero() && (d.moved < leastMoved || now.Sub(d.set) < stall/8) {
		return nil
	}
	d.set, d.moved = now, 0
	return set(now.Add(stall))
}
