// Package plantest performs plans in memory and knows what their result must be, in the simplest way.
//
// A World holds the memory of some trainer ranks; Perform reads, scatters and fills as an engine would, and
// checks on the way what a plan says about itself: bytes on the wire, and what its pieces bring. Dense
// replays op-chains element by element, on arrays of indices instead of strides. Neither is fast, and
// neither shares arithmetic with the planner.
package plantest

import (
	"bytes"
	"fmt"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// World is a set of ranks whose memory this program holds, and a destination for plans.
type World struct {
	Layouts []*plan.Layout // one for each rank that was named
	byRank  map[int]*plan.Layout
	sources map[sourceOf]int // index in the rank's names
	Memory  map[int][][]byte // rank, region
}

// sourceOf finds a rank's source by name.
type sourceOf struct {
	rank int
	name string
}

// AddShard gives a rank a shard in a region of its own. The region ends where the address space does.
func (w *World) AddShard(rank int, name string, dt plan.DType, shape, box, stride []int64, room int64) {
	l := w.Layout(rank)
	source := w.AddSource(rank, name, dt, shape)
	l.Source = append(l.Source, uint32(source))
	l.Region = append(l.Region, uint32(len(l.Regions)))
	l.Regions = append(l.Regions, room)
	l.Offset = append(l.Offset, 0)
	l.Box = append(l.Box, box...)
	if stride == nil {
		stride = RowMajor(Sizes(box))
	}
	l.Stride = append(l.Stride, stride...)
}

// AddSource makes a rank name a source, of which it may hold nothing.
func (w *World) AddSource(rank int, name string, dt plan.DType, shape []int64) int {
	l := w.Layout(rank)
	source, ok := w.sources[sourceOf{rank, name}]
	if !ok {
		source = len(l.Names)
		w.sources[sourceOf{rank, name}] = source
		l.Names = append(l.Names, name)
		l.DTypes = append(l.DTypes, dt)
		l.Shapes = append(l.Shapes, shape...)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
	}
	return source
}

// Layout returns a rank's layout, a new one the first time.
func (w *World) Layout(rank int) *plan.Layout {
	if l, ok := w.byRank[rank]; ok {
		return l
	}
	if w.byRank == nil {
		w.byRank, w.sources = map[int]*plan.Layout{}, map[sourceOf]int{}
	}
	l := &plan.Layout{Rank: rank, Stride: []int64{}}
	w.byRank[rank] = l
	w.Layouts = append(w.Layouts, l)
	return l
}

// Load fills the memory of all shards of the table from full tensors.
func (w *World) Load(t *plan.Table, tensor func(source int) []byte) {
	w.Memory = map[int][][]byte{}
	for _, l := range w.Layouts {
		w.Memory[l.Rank] = make([][]byte, len(l.Regions))
	}
	for i := range t.Len() {
		full := tensor(i)
		shape, elsize := t.Shape(i), t.DType(i).Size()
		for _, s := range t.Shards(i) {
			stride := s.Stride
			if stride == nil {
				stride = RowMajor(Sizes(s.Box))
			}
			n := Sizes(s.Box)
			mem := w.Memory[s.Rank][s.Region]
			if need := s.Offset + Reach(n, stride)*elsize; need > int64(len(mem)) {
				grown := make([]byte, need) // not append: memory that nobody touches costs nothing
				copy(grown, mem)
				mem = grown
			}
			global := RowMajor(shape)
			from := int64(0)
			for d := range n {
				from += s.Box[2*d] * global[d]
			}
			rows(n, global, stride, func(src, dst, run int64) {
				copy(mem[s.Offset+dst*elsize:][:run*elsize], full[(from+src)*elsize:])
			})
			w.Memory[s.Rank][s.Region] = mem
		}
	}
}

// Perform reads, scatters and fills, as an engine would, and checks what a plan promises about itself.
func (w *World) Perform(p *plan.Plan, arenas [][]byte) error {
	wire := int64(0)
	for i := range p.Batches() {
		b := p.Batch(i)
		staging := make([]byte, b.Staging)
		for j := range staging {
			staging[j] = 0xA5
		}
		got, err := w.read(p, i, arenas, staging)
		if err != nil {
			return err
		}
		if got != b.Wire {
			return fmt.Errorf("batch %d says %d bytes and reads %d", i, b.Wire, got)
		}
		wire += got
		if err := w.checkPieces(p, i, arenas, staging); err != nil {
			return err
		}
		for s := range p.Scatters(i) {
			if err := s.Do(arenas[s.Dest], staging); err != nil {
				return err
			}
		}
	}
	for _, f := range p.FillOps() {
		if err := f.Do(arenas[f.Dest]); err != nil {
			return err
		}
	}
	if s := p.Stats(); s.Wire != wire {
		return fmt.Errorf("the plan says %d bytes and reads %d", s.Wire, wire)
	}
	return nil
}

// read performs the segments of one batch, run by run, and counts the bytes.
func (w *World) read(p *plan.Plan, i int, arenas [][]byte, staging []byte) (int64, error) {
	regions := w.Memory[p.Batch(i).Rank]
	total := int64(0)
	for s := range p.Segments(i) {
		dst := staging
		if s.Dest != plan.Staging {
			dst = arenas[s.Dest]
		}
		src := regions[s.Region]
		n := s.N[:]
		var bad error
		Each(n, func(at []int64) {
			from, to := s.Src, s.Dst
			for d, x := range at {
				from += x * s.SrcStride[d]
				to += x * s.DstStride[d]
			}
			if from < 0 || from+s.Run > int64(len(src)) || to < 0 || to+s.Run > int64(len(dst)) {
				bad = fmt.Errorf("segment %+v leaves region of %d or destination of %d", s, len(src), len(dst))
				return
			}
			copy(dst[to:to+s.Run], src[from:])
			total += s.Run
		})
		if bad != nil {
			return 0, bad
		}
	}
	return total, nil
}

// checkPieces compares what each piece says to have brought with the shard's own bytes.
func (w *World) checkPieces(p *plan.Plan, i int, arenas [][]byte, staging []byte) error {
	t := p.Table()
	for pc := range p.Pieces(i) {
		shard := shardOf(t, pc)
		if shard == nil {
			return fmt.Errorf("piece of shard %d of rank %d, which source %q has not", pc.Shard, pc.Rank, t.Name(pc.Source))
		}
		stride := shard.Stride
		if stride == nil {
			stride = RowMajor(Sizes(shard.Box))
		}
		dst := staging
		if pc.Dest != plan.Staging {
			dst = arenas[pc.Dest]
		}
		n := make([]int64, len(pc.Lo))
		for d := range n {
			n[d] = pc.Hi[d] - pc.Lo[d]
			if pc.Lo[d] < shard.Box[2*d] || pc.Hi[d] > shard.Box[2*d+1] || n[d] <= 0 {
				return fmt.Errorf("piece [%v, %v) of shard %v", pc.Lo, pc.Hi, shard.Box)
			}
		}
		elsize := t.DType(pc.Source).Size()
		mem := w.Memory[pc.Rank][shard.Region]
		first := int64(0)
		lies := make([]int64, len(n)) // strides of the piece in elements
		for d := range n {
			first += (pc.Lo[d] - shard.Box[2*d]) * stride[d]
			lies[d] = pc.Stride[d] / elsize
		}
		var bad error
		rows(n, stride, lies, func(src, off, run int64) {
			src, off, run = shard.Offset+(first+src)*elsize, pc.Off+off*elsize, run*elsize
			if !bytes.Equal(mem[src:src+run], dst[off:off+run]) {
				bad = fmt.Errorf("piece [%v, %v) of %q: %d bytes at %d are not where the piece says", pc.Lo, pc.Hi, t.Name(pc.Source), run, src)
			}
		})
		if bad != nil {
			return bad
		}
	}
	return nil
}

// shardOf finds the shard that a piece is of; nil when there is none.
func shardOf(t *plan.Table, pc *plan.Piece) *plan.Shard {
	for _, s := range t.Shards(pc.Source) {
		if s.Rank == pc.Rank && s.Index == pc.Shard {
			return &s
		}
	}
	return nil
}

// Sizes returns the extents of a box lo0,hi0,lo1,hi1,….
func Sizes(box []int64) []int64 {
	n := make([]int64, len(box)/2)
	for d := range n {
		n[d] = box[2*d+1] - box[2*d]
	}
	return n
}

// RowMajor returns the strides of a packed tensor, in elements.
func RowMajor(shape []int64) []int64 {
	s := make([]int64, len(shape))
	step := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		s[d] = step
		step *= max(shape[d], 1)
	}
	return s
}

// Reach returns elements from the first to past the last; 0 when there are none.
func Reach(n, stride []int64) int64 {
	r := int64(1)
	for d := range n {
		if n[d] == 0 {
			return 0
		}
		r += (n[d] - 1) * stride[d]
	}
	return r
}

// Nelems returns the number of elements of a shape.
func Nelems(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
}

// Each calls f with every index of the shape, the last dimension fastest.
func Each(shape []int64, f func(at []int64)) {
	for _, n := range shape {
		if n == 0 {
			return
		}
	}
	at := make([]int64, len(shape))
	for {
		f(at)
		d := len(shape) - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < shape[d] {
				break
			}
			at[d] = 0
		}
		if d < 0 {
			return
		}
	}
}

// rows calls f for runs of elements that lie one after the other on both sides: single elements, or the
// whole last dimension.
func rows(n, a, b []int64, f func(a, b, run int64)) {
	run := int64(1)
	if k := len(n) - 1; k >= 0 && a[k] == 1 && b[k] == 1 {
		run, n = n[k], n[:k]
	}
	if run == 0 {
		return
	}
	Each(n, func(at []int64) {
		x, y := int64(0), int64(0)
		for d, i := range at {
			x += i * a[d]
			y += i * b[d]
		}
		f(x, y, run)
	})
}
