package plan

import (
	"fmt"
	"slices"
)

// group lists the layout's shards by source. Ranks whose lists are equal share one.
func (m *Merger) group(l *Layout, r *rankShards) {
	n := len(m.t.names)
	m.starts = slices.Grow(m.starts[:0], n+1)[:n+1]
	start := m.starts
	clear(start)
	sorted, last := true, uint32(0)
	for _, s := range l.Source {
		id := m.local[s]
		sorted = sorted && id >= last
		last = id
		start[id+1]++
	}
	for i := range n {
		start[i+1] += start[i]
	}
	if !sorted {
		r.order = make([]uint32, len(l.Source))
		next := slices.Clone(start)
		for k, s := range l.Source {
			id := m.local[s]
			r.order[next[id]] = uint32(k)
			next[id]++
		}
	}
	if k := len(m.t.ranks); k > 0 && slices.Equal(m.t.ranks[k-1].start, start) {
		r.start = m.t.ranks[k-1].start
		return
	}
	r.start = slices.Clone(start)
}

// shards walks the layout's shards and moves each source on to the class that they make.
func (m *Merger) shards(l *Layout, rank uint32) error {
	t := m.t
	clear(m.cache[:])
	at, prev, k := 0, ^uint32(0), uint32(0)
	for i, s := range l.Source {
		ndim := int(l.ShapeEnd[s])
		if s > 0 {
			ndim -= int(l.ShapeEnd[s-1])
		}
		id := m.local[s]
		if id == prev {
			k++
		} else {
			k = 0
			if t.ranks[rank].order != nil {
				k = m.seenBefore(l, i)
			}
		}
		prev = id
		var stride []int64
		if l.Stride != nil {
			stride = l.Stride[at : at+ndim]
		}
		box, empty, err := m.box(l.Box[2*at:2*(at+ndim)], stride, t.shapeOf[id])
		if err != nil {
			return m.shardFault(l, i, err)
		}
		at += ndim
		if empty {
			continue
		}
		class := m.follow(step{t.classOf[id], rank, box, k})
		t.classOf[id] = class
		if err := m.inRegion(l, i, m.spans[class]); err != nil {
			return m.shardFault(l, i, err)
		}
	}
	return nil
}

// seenBefore counts the shards of the same source before shard i, for layouts whose shards are not grouped.
func (m *Merger) seenBefore(l *Layout, i int) uint32 {
	r := &m.t.ranks[len(m.t.ranks)-1]
	id := m.local[l.Source[i]]
	list := r.order[r.start[id]:r.start[id+1]]
	k, _ := slices.BinarySearch(list, uint32(i))
	return uint32(k)
}

// follow returns the class that a step leads to. Neighbouring sources mostly take the same step.
func (m *Merger) follow(s step) uint32 {
	h := (s.class*0x9E3779B1 ^ s.box*0x85EBCA6B ^ s.k) >> (32 - stepCacheBits)
	if c := &m.cache[h]; c.to != 0 && c.from == s {
		return c.to
	}
	to, ok := m.step[s]
	if !ok {
		to = m.newClass(s.class, s.rank, s.box, s.k, m.span(s))
		m.step[s] = to
	}
	m.cache[h] = cached{s, to}
	return to
}

// span returns the bytes from a shard's first element to the end of its last; -1 if they overflow, which inRegion
// refuses like any span that is too long.
func (m *Merger) span(s step) int64 {
	box, stride := geometry(m.boxes.row(s.box))
	size := m.t.classes[s.class].dtype.Size()
	if stride == nil {
		n := size
		for d := 0; d < len(box); d += 2 {
			n *= box[d+1] - box[d]
		}
		return n
	}
	last := int64(0)
	for d, st := range stride {
		reach, ok := mul(box[2*d+1]-box[2*d]-1, st)
		if last, ok = add(last, reach, ok); !ok {
			return -1
		}
	}
	n, ok := mul(last, size)
	if n, ok = add(n, size, ok); !ok {
		return -1
	}
	return n
}

// inRegion checks one shard's bytes. The sum of offset and span is never formed: it might overflow.
func (m *Merger) inRegion(l *Layout, i int, span int64) error {
	if int(l.Region[i]) >= len(l.Regions) {
		return fmt.Errorf("%w: region %d of %d", ErrRegion, l.Region[i], len(l.Regions))
	}
	size, off := l.Regions[l.Region[i]], l.Offset[i]
	if span < 0 || off < 0 || size < 0 || off > size-span {
		return fmt.Errorf("%w: %d bytes at %d of region %d of %d bytes", ErrRegion, span, off, l.Region[i], size)
	}
	return nil
}

// shardFault names a shard that is wrong. It looks for the box anew: this happens once.
func (m *Merger) shardFault(l *Layout, i int, err error) error {
	at := 0
	for _, s := range l.Source[:i] {
		at += len(l.shape(int(s)))
	}
	ndim := len(l.shape(int(l.Source[i])))
	return &Fault{
		Err: err, Rank: -1, Copy: -1, Source: l.Names[l.Source[i]], Ranks: []int{l.Rank},
		Box: slices.Clone(l.Box[2*at : 2*(at+ndim)]), Detail: fmt.Sprintf("shard %d", i),
	}
}
