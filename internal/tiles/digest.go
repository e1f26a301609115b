package tiles

import (
	"fmt"
	"sync"

	"github.com/zeebo/xxh3"
)

// gatherBytes is how many bytes of scattered runs are collected before they are hashed: as many as a tile has by default,
// so that most are hashed by one call. An update of a running hash costs as much as copying some 200 bytes, and the buffer
// stays in the second-level cache.
const gatherBytes = defaultMax

// Digest digests a strided box of mem: its first element lies at off, element (i,j,…) at off + i·stride[0] + … bytes.
// shape is in elements of elsize bytes. It fails, and reads nothing, where the box leaves mem.
func Digest(mem []byte, off, elsize int64, shape, stride []int64) (uint64, error) {
	if err := inside(int64(len(mem)), off, elsize, shape, stride); err != nil {
		return 0, err
	}
	dims, run := collapse(elsize, shape, stride, stride)
	for dims > 1 && shape[0] == 1 { // nothing goes that way
		shape, stride, dims = shape[1:], stride[1:], dims-1
	}
	switch {
	case dims == 0:
		return xxh3.Hash(mem[off : off+run]), nil
	case dims == 1 && rowsFit(run, stride[0], shape[0]):
		return hashRows(mem, off, run, stride[0], shape[0]), nil
	}
	g := gatherers.Get().(*gatherer)
	defer gatherers.Put(g)
	g.m = mover{dst: g.buf[:], src: mem, run: run}
	return g.digest(off, shape[:dims], stride[:dims]), nil
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
		return fmt.Errorf("box at %d, shape %v, strides %v: bytes [%d, %d) leave a memory of %d", off, shape, stride, lo, hi, length)
	}
	return nil
}

// collapse finds how many outer dimensions remain when the inner ones that lie back to back, on both sides, are one run of
// bytes; none and no byte where the box is empty.
func collapse(elsize int64, shape, a, b []int64) (dims int, run int64) {
	for _, n := range shape {
		if n == 0 {
			return 0, 0
		}
	}
	run = elsize
	for d := len(shape) - 1; d >= 0; d-- {
		if shape[d] != 1 && (a[d] != run || b[d] != run) {
			return d + 1, run
		}
		run *= shape[d]
	}
	return 0, run
}

// gatherer hashes the runs of a box in row-major order by way of a buffer.
type gatherer struct {
	m     mover          // from the box's memory into buf
	h     xxh3.Hasher    // of boxes that don't fit buf
	to    [maxDims]int64 // byte strides of the part that is gathered
	shape [maxDims]int64 // of the part that is gathered, elements
	buf   [gatherBytes]byte
	n     int64 // bytes in buf
}

var gatherers = sync.Pool{New: func() any { return new(gatherer) }}

// digest gathers a box that fits the buffer and hashes it at once; of others it hashes one buffer after the other.
func (g *gatherer) digest(off int64, shape, stride []int64) uint64 {
	total := g.m.run
	for _, n := range shape {
		total *= n
	}
	g.n = 0
	if total <= gatherBytes {
		g.gather(off, shape, stride)
		return xxh3.Hash(g.buf[:total])
	}
	g.h.Reset()
	g.pieces(off, shape, stride, total)
	g.flush()
	return g.h.Sum64()
}

// pieces goes down to parts of the box that fit the buffer: a tile of any size is hashed in bounded memory.
func (g *gatherer) pieces(off int64, shape, stride []int64, total int64) {
	if len(shape) == 0 { // one run that is longer than the buffer
		g.flush()
		_, _ = g.h.Write(g.m.src[off : off+g.m.run]) // a hash never fails
		return
	}
	part := total / shape[0]
	if part > gatherBytes {
		for i := range shape[0] {
			g.pieces(off+i*stride[0], shape[1:], stride[1:], part)
		}
		return
	}
	copy(g.shape[:], shape)
	for i := int64(0); i < shape[0]; i += g.shape[0] {
		room := (gatherBytes - g.n) / part
		if room == 0 {
			g.flush()
			room = gatherBytes / part
		}
		g.shape[0] = min(room, shape[0]-i)
		g.gather(off+i*stride[0], g.shape[:len(shape)], stride)
	}
}

// gather appends a box for which there is room.
func (g *gatherer) gather(off int64, shape, stride []int64) {
	step := g.m.run
	for d := len(shape) - 1; d >= 0; d-- {
		g.to[d] = step
		step *= shape[d]
	}
	g.m.move(g.n, off, shape, g.to[:len(shape)], stride)
	g.n += step
}

func (g *gatherer) flush() {
	if g.n > 0 {
		_, _ = g.h.Write(g.buf[:g.n])
		g.n = 0
	}
}
