package tiles

import (
	"fmt"
	"sync"

	"github.com/zeebo/xxh3"
)

// gatherBytes is how many bytes of short runs are collected before they are hashed: an update of the hash costs as
// much as copying some 200 bytes.
const gatherBytes = 4096

// hasher is the reusable state of one digest.
type hasher struct {
	h   xxh3.Hasher
	buf [gatherBytes]byte
	n   int // bytes in buf
}

var hashers = sync.Pool{New: func() any { return new(hasher) }}

// Digest digests a strided box of mem: its first element lies at off, element (i,j,…) at off + i·stride[0] + … bytes.
// shape is in elements of elsize bytes. It fails, and reads nothing, where the box leaves mem.
func Digest(mem []byte, off, elsize int64, shape, stride []int64) (uint64, error) {
	if err := inside(int64(len(mem)), off, elsize, shape, stride); err != nil {
		return 0, err
	}
	dims, run := collapse(elsize, shape, stride)
	if dims == 0 {
		return xxh3.Hash(mem[off : off+run]), nil
	}
	s := hashers.Get().(*hasher)
	defer hashers.Put(s)
	s.h.Reset()
	s.n = 0
	s.rows(mem, off, run, shape[:dims], stride[:dims])
	s.flush()
	return s.h.Sum64(), nil
}

// inside refuses a box that leaves a memory of length bytes.
func inside(length, off, elsize int64, shape, stride []int64) error {
	lo, hi := off, off+elsize
	for d, n := range shape {
		if n == 0 {
			return nil
		}
		span := (n - 1) * stride[d]
		if span < 0 {
			lo += span
		} else {
			hi += span
		}
	}
	if lo < 0 || hi > length {
		return fmt.Errorf("digest box at %d, shape %v, strides %v: bytes [%d, %d) leave a memory of %d", off, shape, stride, lo, hi, length)
	}
	return nil
}

// collapse finds how many outer dimensions remain when the inner ones that lie back to back are one run of bytes.
func collapse(elsize int64, shape, stride []int64) (dims int, run int64) {
	run = elsize
	for d := len(shape) - 1; d >= 0; d-- {
		if shape[d] == 0 {
			return 0, 0
		}
		if shape[d] != 1 && stride[d] != run {
			return d + 1, run
		}
		run *= shape[d]
	}
	return 0, run
}

// rows feeds the runs of a box in row-major order.
func (s *hasher) rows(mem []byte, off, run int64, shape, stride []int64) {
	if len(shape) == 0 {
		s.add(mem[off : off+run])
		return
	}
	for range shape[0] {
		s.rows(mem, off, run, shape[1:], stride[1:])
		off += stride[0]
	}
}

func (s *hasher) add(b []byte) {
	if len(b) > gatherBytes/4 {
		s.flush()
		_, _ = s.h.Write(b)
		return
	}
	if s.n+len(b) > gatherBytes {
		s.flush()
	}
	s.n += copy(s.buf[s.n:], b)
}

func (s *hasher) flush() {
	_, _ = s.h.Write(s.buf[:s.n])
	s.n = 0
}
