package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// sharding is what a class means for planning: a partition of the source in slots, each of which some
// ranks can serve. Dimensions that no shard cuts are joined with the one before, so that most sources
// become one- or two-dimensional.
type sharding struct {
	shape []int64 // as published
	joint []int64 // after joining, at least one dimension
	unit  int64   // elements of one row of the published dimension that joint dimension 0 begins with
	slots []slot
	kept  []box // joint coordinates: what nothing is read of, since the base holds it
	err   error // errManySlots: there are no slots
}

// maxSlots bounds the parts that overlapping shards of one source are cut into. A thousand ranks that each hold
// their own part have a thousand; slabs that cross each other in three dimensions grow with the third power.
const maxSlots = 1 << 15

var errManySlots = fmt.Errorf("%w: its shards overlap in more than %d parts", ErrLimit, maxSlots)

// slot is a box of the source with its holders: shards with equal boxes and strides.
type slot struct {
	box    box                  // joint coordinates, the part that this slot owns
	origin [maxSourceDims]int64 // joint coordinates of the shard's first element
	mem    [maxSourceDims]int64 // bytes per step of a joint coordinate in the shard's memory
	from   []holder
}

// holder is a shard that serves a slot.
type holder struct {
	rank uint32 // index in Table.ranks
	k    uint32 // which of the rank's shards of the source
}

// sharding works a class out. Ranks that exclude names don't count.
func (t *Table) sharding(id uint32, exclude func(rank int) bool) *sharding {
	s, slots := t.unjoined(id, exclude)
	s.join(slots)
	s.slots, s.err = partition(slots)
	return s
}

// unjoined starts a sharding: its slots as published, which may still overlap.
func (t *Table) unjoined(id uint32, exclude func(rank int) bool) (*sharding, []slot) {
	c := t.classes[id]
	list := t.class(id)
	if exclude != nil {
		list = slices.DeleteFunc(list, func(c class) bool { return exclude(t.ranks[c.rank].rank) })
	}
	return &sharding{shape: t.shapes.row(c.shape)}, t.holders(list, c.dtype.Size())
}

// cutSharding is sharding for a source of which only a part is read: its slots hold only that, and what is
// kept comes beside them.
func (t *Table) cutSharding(id uint32, exclude func(rank int) bool, c *cut) *sharding {
	s, whole := t.unjoined(id, exclude)
	var slots []slot
	owned, err := partition(whole)
	if err != nil {
		s.err = err
		return s
	}
	for _, w := range owned {
		for i := range c.changed {
			if !w.box.overlaps(&c.changed[i]) {
				continue
			}
			part := w
			part.box = w.box.meet(&c.changed[i])
			slots = append(slots, part)
		}
	}
	read := len(slots)
	for i := range c.kept { // they join with the others, so that coordinates mean the same
		slots = append(slots, newSlot(c.kept[i].flat(), nil, 1))
	}
	s.join(slots)
	s.slots = slots[:read:read]
	for i := range slots[read:] {
		s.kept = append(s.kept, slots[read+i].box)
	}
	return s
}

// holders makes one slot of each distinct box. When replicas lie in memory differently, the first way counts.
func (t *Table) holders(list []class, elsize int64) []slot {
	var slots []slot
	var seen rows
	kept := []uint32{}
	for _, c := range list {
		flat, stride := geometry(t.boxes.row(c.box))
		id, fresh := seen.id(flat)
		if fresh {
			slots = append(slots, newSlot(flat, stride, elsize))
			kept = append(kept, c.box)
		}
		if kept[id] == c.box {
			slots[id].from = append(slots[id].from, holder{c.rank, c.k})
		}
	}
	return slots
}

// newSlot turns a box and its strides, in elements, into a slot with strides in bytes.
func newSlot(flat, stride []int64, elsize int64) slot {
	s := slot{box: boxOf(flat)}
	s.origin = s.box.lo
	packed := elsize
	for d := s.box.n - 1; d >= 0; d-- {
		s.mem[d] = packed
		if stride != nil {
			s.mem[d] = stride[d] * elsize
		}
		packed *= s.box.hi[d] - s.box.lo[d]
	}
	return s
}

// join joins dimensions that every slot holds whole and without a gap with the dimension before them.
//
// It changes no address: where dimension d is held whole and dimension d-1 strides by exactly its size, an element's
// place is a linear function of the joint coordinate. What it spares is work: rows of a matrix that is cut by rows
// become runs of one dimension, before any of them is looked at.
func (s *sharding) join(slots []slot) {
	s.joint = slices.Clone(s.shape)
	s.unit = 1
	if len(s.joint) == 0 {
		s.joint = []int64{1}
		for i := range slots {
			slots[i].box = box{n: 1, hi: [maxSourceDims]int64{1}}
		}
	}
	for d := len(s.joint) - 1; d > 0; d-- {
		if !joinable(slots, d, s.joint[d]) {
			continue
		}
		n := s.joint[d]
		for i := range slots {
			slots[i].joinDim(d, n)
		}
		s.joint[d-1] *= n
		s.joint = slices.Delete(s.joint, d, d+1)
		if d == 1 {
			s.unit *= n
		}
	}
}

// joinable reports whether dimension d is a continuation of d-1 in every slot: whole, and without a gap.
func joinable(slots []slot, d int, n int64) bool {
	for i := range slots {
		s := &slots[i]
		if s.box.lo[d] != 0 || s.box.hi[d] != n {
			return false
		}
		if s.box.hi[d-1]-s.origin[d-1] > 1 && s.mem[d-1] != n*s.mem[d] {
			return false
		}
	}
	return true
}

// joinDim joins dimension d, of n elements, with the one before.
func (s *slot) joinDim(d int, n int64) {
	b := &s.box
	b.lo[d-1] *= n
	b.hi[d-1] *= n
	s.mem[d-1] = s.mem[d]
	s.origin[d-1] *= n // the shard holds dimension d whole, so its origin there is 0
	for e := d; e+1 < b.n; e++ {
		b.lo[e], b.hi[e], s.mem[e], s.origin[e] = b.lo[e+1], b.hi[e+1], s.mem[e+1], s.origin[e+1]
	}
	b.n--
	b.lo[b.n], b.hi[b.n], s.mem[b.n], s.origin[b.n] = 0, 0, 0, 0
}

// partition cuts overlapping slots so that each element has one owner. Larger boxes own what they hold,
// smaller ones the rest: that takes the fewest reads. That the slots are disjoint afterwards is what lets builder.cover
// find a hole by counting, and it is why no byte is read from two ranks.
func partition(slots []slot) ([]slot, error) {
	if disjoint(slots) {
		return slots, nil
	}
	slices.SortStableFunc(slots, func(a, b slot) int { return cmp.Compare(b.box.nelems(), a.box.nelems()) })
	var out []slot
	for i := range slots {
		parts := []box{slots[i].box}
		for k := range slots[:i] {
			if !slots[i].box.overlaps(&slots[k].box) {
				continue
			}
			var rest []box
			for p := range parts {
				rest = parts[p].minus(&slots[k].box, rest)
			}
			if parts = rest; len(out)+len(parts) > maxSlots {
				return nil, errManySlots
			}
		}
		for _, p := range parts {
			part := slots[i]
			part.box = p
			out = append(out, part)
		}
	}
	return out, nil
}

// disjoint sweeps along the dimension that tells most boxes apart.
func disjoint(slots []slot) bool {
	if len(slots) < 2 {
		return true
	}
	boxes := make([]box, len(slots))
	for i := range slots {
		boxes[i] = slots[i].box
	}
	d := sweepDim(boxes)
	slices.SortFunc(boxes, func(a, b box) int { return cmp.Compare(a.lo[d], b.lo[d]) })
	for i := range boxes {
		for k := i + 1; k < len(boxes) && boxes[k].lo[d] < boxes[i].hi[d]; k++ {
			if boxes[i].overlaps(&boxes[k]) {
				return false
			}
		}
	}
	return true
}
