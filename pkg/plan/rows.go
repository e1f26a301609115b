package plan

import (
	"math/bits"
	"slices"
)

// rows gives equal rows of integers the same small number. Geometry repeats: 18,867 tensors of a real
// model have a dozen shapes, so whatever is worked out for a row is worked out once.
type rows struct {
	flat  []int64
	end   []uint32
	hash  []uint64
	slots []uint32 // open addressing, row number + 1; 0 is free
}

// row returns what id was given the number for.
func (r *rows) row(id uint32) []int64 {
	from := uint32(0)
	if id > 0 {
		from = r.end[id-1]
	}
	return r.flat[from:r.end[id]:r.end[id]]
}

// id returns the number of the row, and whether it is new. The row is copied when it is.
func (r *rows) id(row []int64) (uint32, bool) {
	if len(r.end)*2 >= len(r.slots) {
		r.grow()
	}
	h := hashRow(row)
	mask := uint64(len(r.slots) - 1)
	i := h & mask
	for ; r.slots[i] != 0; i = (i + 1) & mask {
		if id := r.slots[i] - 1; r.hash[id] == h && slices.Equal(r.row(id), row) {
			return id, false
		}
	}
	r.flat = append(r.flat, row...)
	r.end = append(r.end, uint32(len(r.flat)))
	r.hash = append(r.hash, h)
	r.slots[i] = uint32(len(r.end))
	return uint32(len(r.end) - 1), true
}

// grow doubles the slots, so that at most half of them are taken and chains stay short.
func (r *rows) grow() {
	r.slots = make([]uint32, max(64, 2*len(r.slots)))
	mask := uint64(len(r.slots) - 1)
	for id, h := range r.hash {
		i := h & mask
		for r.slots[i] != 0 {
			i = (i + 1) & mask
		}
		r.slots[i] = uint32(id + 1)
	}
}

// hashRow mixes by multiplication to 128 bits. It is no defence against chosen keys, and needs none: a table
// that collides on purpose only slows its own plan down.
func hashRow(row []int64) uint64 {
	h := uint64(len(row)) * 0x9E3779B97F4A7C15
	for _, v := range row {
		hi, lo := bits.Mul64(h^uint64(v), 0xD6E8FEB86659FD93)
		h = hi ^ lo ^ 0xA0761D6478BD642F
	}
	return h ^ h>>32
}
