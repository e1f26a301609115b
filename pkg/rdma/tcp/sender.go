package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
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

func (o *sender) start(h header) { o.buffered(h.append(nil)) }

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
	for len(b) > 0 {
		if err := o.clock.renew(o.conn.SetWriteDeadline, o.stall); err != nil {
			return err
		}
		n, err := o.conn.Write(b[:min(len(b), stepBytes)])
		if err != nil {
			return err
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
	for off < end {
		if err := o.clock.renew(o.conn.SetWriteDeadline, o.stall); err != nil {
			return err
		}
		var n int
		var sysErr error
		err := rc.Write(func(sock uintptr) bool {
			n, sysErr = unix.Sendfile(int(sock), fd, &off, int(min(end-off, stepBytes)))
			return !errors.Is(sysErr, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return err
		case errors.Is(sysErr, unix.EINTR):
		case sysErr != nil:
			return fmt.Errorf("send from memory: %w", sysErr)
		case n == 0:
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}

// deadline renews a connection's deadline, but not at every call: setting it costs as much as a small read.
type deadline struct{ set time.Time }

// renew sets the deadline a stall from now if an eighth of one has passed since it was last set.
func (d *deadline) renew(set func(time.Time) error, stall time.Duration) error {
	now := time.Now()
	if now.Sub(d.set) < stall/8 {
		return nil
	}
	d.set = now
	return set(now.Add(stall))
}
