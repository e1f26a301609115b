package tiles

import "encoding/binary"

// Copy copies a strided box of elements of elsize bytes. Element (i,j,…) lies at dstOff + i·dstStride[0] + … in dst, and
// likewise in src; all of these are bytes. It fails, and copies nothing, where the box leaves either memory.
func Copy(dst []byte, dstOff int64, dstStride []int64, src []byte, srcOff int64, srcStride, shape []int64, elsize int64) error {
	if err := inside(int64(len(dst)), dstOff, elsize, shape, dstStride); err != nil {
		return err
	}
	if err := inside(int64(len(src)), srcOff, elsize, shape, srcStride); err != nil {
		return err
	}
	n, run := collapse(elsize, shape, srcStride, dstStride)
	if run > 0 {
		m := mover{dst: dst, src: src, run: run}
		m.move(dstOff, srcOff, shape[:n], dstStride, srcStride)
	}
	return nil
}

// mover copies runs between two memories, within boxes that were checked.
type mover struct {
	dst, src []byte
	run      int64 // bytes
}

func (m *mover) move(do, so int64, shape, ds, ss []int64) {
	switch len(shape) {
	case 0:
		copy(m.dst[do:do+m.run], m.src[so:so+m.run])
	case 1:
		m.row(do, so, shape[0], ds[0], ss[0])
	case 2:
		m.plane(do, so, shape, ds, ss)
	default:
		for range shape[0] {
			m.move(do, so, shape[1:], ds[1:], ss[1:])
			do += ds[0]
			so += ss[0]
		}
	}
}

// plane copies rows of runs. A source that lies transposed is read along its closer dimension, in blocks small enough that
// the cache lines of both sides stay where they are until they are used up: strides are often powers of two, whose lines
// compete for the same few places.
func (m *mover) plane(do, so int64, shape, ds, ss []int64) {
	if abs(ss[0]) >= abs(ss[1]) {
		for range shape[0] {
			m.row(do, so, shape[1], ds[1], ss[1])
			do, so = do+ds[0], so+ss[0]
		}
		return
	}
	const tall, wide = 16, 128
	for j := int64(0); j < shape[1]; j += wide {
		for i := int64(0); i < shape[0]; i += tall {
			n := min(tall, shape[0]-i)
			for k := j; k < min(j+wide, shape[1]); k++ {
				m.row(do+i*ds[0]+k*ds[1], so+i*ss[0]+k*ss[1], n, ds[0], ss[0])
			}
		}
	}
}

func abs(n int64) int64 { return max(n, -n) }

// row copies n runs. Single elements, of which transposed boxes consist, are moved by loads and stores: a call of copy for
// two bytes costs as much as for fifty.
func (m *mover) row(do, so, n, ds, ss int64) {
	dst, src := m.dst, m.src
	switch m.run {
	case 1:
		for range n {
			dst[do] = src[so]
			do, so = do+ds, so+ss
		}
	case 2:
		for range n {
			binary.LittleEndian.PutUint16(dst[do:], binary.LittleEndian.Uint16(src[so:]))
			do, so = do+ds, so+ss
		}
	case 4:
		for range n {
			binary.LittleEndian.PutUint32(dst[do:], binary.LittleEndian.Uint32(src[so:]))
			do, so = do+ds, so+ss
		}
	case 8:
		for range n {
			binary.LittleEndian.PutUint64(dst[do:], binary.LittleEndian.Uint64(src[so:]))
			do, so = do+ds, so+ss
		}
	default:
		for range n {
			copy(dst[do:do+m.run], src[so:so+m.run])
			do, so = do+ds, so+ss
		}
	}
}
