package messages

import "sync"

// scratch is memory for an expanded payload of which nothing is kept once it is
// decoded. A receiver decodes hundreds of layouts in a row, each a megabyte or more:
// fresh memory for each would cost as much to clear as to fill.
type scratch struct{ buf *[]byte }

var scratches = sync.Pool{New: func() any { return new([]byte) }}

// maxScratch bounds what the pool keeps alive, in bytes for each decoder at work.
const maxScratch = 8 << 20

// room gives nbytes of memory with arbitrary content, until release.
func (s *scratch) room(nbytes int) []byte {
	if nbytes > maxScratch {
		return make([]byte, nbytes)
	}
	if s.buf == nil {
		s.buf, _ = scratches.Get().(*[]byte)
	}
	if cap(*s.buf) < nbytes {
		*s.buf = make([]byte, nbytes)
	}
	return (*s.buf)[:nbytes]
}

// release gives the memory back. Whoever still held a view of it would read another payload.
func (s *scratch) release() {
	if s.buf != nil {
		scratches.Put(s.buf)
		s.buf = nil
	}
}
