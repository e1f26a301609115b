package plan

import (
	"fmt"
	"slices"
)

// seenBox remembers the number of a packed box: ranks list the same few over and over.
type seenBox struct {
	set, empty bool
	shape, id  uint32
	n          int
	flat       [2 * maxSourceDims]int64
}

// box numbers a box with its strides.
func (m *Merger) box(box, stride []int64, shape uint32) (id uint32, empty bool, err error) {
	if stride != nil || len(box) == 0 {
		return m.newBox(box, stride, shape)
	}
	c := &m.seen[(uint64(box[0])*0x9E3779B97F4A7C15>>32^uint64(shape))%uint64(len(m.seen))]
	if c.set && c.shape == shape && slices.Equal(c.flat[:c.n], box) {
		return c.id, c.empty, nil
	}
	if id, empty, err = m.newBox(box, nil, shape); err == nil {
		*c = seenBox{set: true, empty: empty, shape: shape, id: id}
		c.n = copy(c.flat[:], box)
	}
	return id, empty, err
}

// newBox looks the number up. Strides that say row-major packed are dropped, so that replicas are seen as
// equal whoever wrote them down.
func (m *Merger) newBox(box, stride []int64, shape uint32) (id uint32, empty bool, err error) {
	m.scratch = append(m.scratch[:0], int64(shape), int64(len(box)/2))
	m.scratch = append(m.scratch, box...)
	if stride != nil && !packed(box, stride) {
		for d, st := range stride {
			if box[2*d+1]-box[2*d] <= 1 {
				st = 0 // whatever was written there, nothing moves along it
			}
			m.scratch = append(m.scratch, st)
		}
	}
	id, fresh := m.boxes.id(m.scratch)
	if fresh {
		if err := inside(box, stride, m.shapes.row(shape)); err != nil {
			return 0, false, err
		}
	}
	return id, hollow(box), nil
}

// geometry takes a row of Merger.box apart: shape, number of dimensions, lo and hi of each, and the strides unless
// the box lies packed.
func geometry(row []int64) (box, stride []int64) {
	n := 2 + 2*row[1]
	if int(n) < len(row) {
		stride = row[n:]
	}
	return row[2:n:n], stride
}

// packed reports whether strides say what a row-major packed box would have. Dimensions of one element may
// have any stride, and a box without elements too.
func packed(box, stride []int64) bool {
	if hollow(box) {
		return true
	}
	want := int64(1)
	for d := len(stride) - 1; d >= 0; d-- {
		n := box[2*d+1] - box[2*d]
		if n > 1 && stride[d] != want {
			return false
		}
		want *= n
	}
	return true
}

// hollow reports whether a box, lo0,hi0,lo1,hi1,…, holds nothing.
func hollow(box []int64) bool {
	for d := 0; d < len(box); d += 2 {
		if box[d] == box[d+1] {
			return true
		}
	}
	return false
}

// inside checks a box and its strides against the shape. Strides of 0 are refused where they would show one
// element several times: whoever reads such a shard would read its bytes several times. Along dimensions of one
// element, and in boxes of none, nothing moves: strides there may be anything, as in torch.
func inside(box, stride, shape []int64) error {
	for d, n := range shape {
		if lo, hi := box[2*d], box[2*d+1]; lo < 0 || hi < lo || hi > n {
			return fmt.Errorf("%w: [%d, %d) of dimension %d of size %d", ErrLayout, lo, hi, d, n)
		}
	}
	for d, st := range stride {
		if n := box[2*d+1] - box[2*d]; n > 1 && st <= 0 && !hollow(box) {
			return fmt.Errorf("%w: stride %d of dimension %d of %d elements", ErrLayout, st, d, n)
		}
	}
	return nil
}
