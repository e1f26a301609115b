package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// layoutSchema names the files of real trainers' shard tables.
const layoutSchema = "refit.layouts.v1"

// layoutFile is one training job.
type layoutFile struct {
	ID    string `json:"id"`
	Ranks []struct {
		Rank    int           `json:"rank"`
		Entries []layoutEntry `json:"entries"`
	} `json:"ranks"`
}

// layoutEntry is one shard of one tensor on one rank.
type layoutEntry struct {
	Name          string     `json:"name"`
	DType         string     `json:"dtype"`
	GlobalShape   []int64    `json:"global_shape"`
	Box           [][2]int64 `json:"box"` // lo and hi of each dimension, in elements of the global shape
	LocalShape    []int64    `json:"local_shape"`
	LocalStride   []int64    `json:"local_stride"`   // elements
	StorageOffset int64      `json:"storage_offset"` // elements
	StorageBytes  int64      `json:"storage_bytes"`  // may exceed the shard: FSDP2 pads it
	Storage       string     `json:"storage"`        // entries with the same value share one; "": its own
	FlatRange     []int64    `json:"flat_range"`     // of the flattened tensor, which this box is a part of
}

// judgeLayout rebuilds every tensor whole from the ranks' storages, which are filled with each element's
// flat index in the tensor, and once more cut in two by columns.
func judgeLayout(name string, raw []byte, out io.Writer) (bool, error) {
	var f layoutFile
	if err := decode(raw, layoutSchema, &f); err != nil {
		return false, err
	}
	w, err := f.world()
	if err != nil {
		return false, err
	}
	table, err := plan.Merge(w.Layouts)
	if err != nil {
		return false, err
	}
	var t tally
	if err := f.checkFlat(&t); err != nil {
		return false, err
	}
	for _, split := range []bool{false, true} {
		d := wholeDest(table, split)
		p, err := plan.New(table, []plan.Dest{d}, plan.Options{})
		if err != nil {
			t.needless += table.Len()
			t.note("%v", err)
			continue
		}
		n := d.LayOut(0)
		arena := make([]byte, n)
		if err := w.Perform(p, [][]byte{arena}); err != nil {
			return false, err
		}
		for i := range d.Params {
			q := &d.Params[i]
			if counts(arena[q.Offset:], q.DType, plantest.Nelems(q.Shape)) {
				t.right++
				continue
			}
			t.wrong++
			t.note("%q (in two halves: %t) is not what the ranks hold", q.Name, split)
		}
	}
	return t.print(out, name, "tensors"), nil
}

// world gives each storage a region of its own and writes each shard's elements into it.
func (f *layoutFile) world() (*plantest.World, error) {
	w := &plantest.World{Memory: map[int][][]byte{}}
	for _, r := range f.Ranks {
		l := w.Layout(r.Rank)
		storages := map[string]int{}
		sources := map[string]int{}
		for i := range r.Entries {
			e := &r.Entries[i]
			key := e.Storage
			if key == "" {
				key = fmt.Sprintf("entry %d", i)
			}
			region, ok := storages[key]
			if !ok {
				region = len(l.Regions)
				storages[key] = region
				l.Regions = append(l.Regions, 0)
				w.Memory[r.Rank] = append(w.Memory[r.Rank], nil)
			}
			if err := f.entry(w, l, e, uint32(region), sources); err != nil {
				return nil, fmt.Errorf("rank %d, %q: %w", r.Rank, e.Name, err)
			}
		}
	}
	return w, nil
}

// entry adds a shard to the rank's layout, and writes the flat index of each of its elements into its storage.
func (f *layoutFile) entry(w *plantest.World, l *plan.Layout, e *layoutEntry, region uint32, sources map[string]int) error {
	dt, err := plan.ParseDType(e.DType)
	if err != nil {
		return err
	}
	s, ok := sources[e.Name]
	if !ok {
		s = len(l.Names)
		sources[e.Name] = s
		l.Names = append(l.Names, e.Name)
		l.DTypes = append(l.DTypes, dt)
		l.Shapes = append(l.Shapes, e.GlobalShape...)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
	}
	box := make([]int64, 0, 2*len(e.Box))
	for _, b := range e.Box {
		box = append(box, b[0], b[1])
	}
	l.Source = append(l.Source, uint32(s))
	l.Region = append(l.Region, region)
	l.Offset = append(l.Offset, e.StorageOffset*dt.Size())
	l.Box = append(l.Box, box...)
	l.Stride = append(l.Stride, slices.Concat(e.LocalStride, make([]int64, max(0, len(e.Box)-len(e.LocalStride))))...)
	n := plantest.Sizes(box)
	if plantest.Nelems(n) == 0 { // a rank says what it likes about a shard that holds nothing
		return nil
	}
	if fmt.Sprint(n) != fmt.Sprint(e.LocalShape) || len(n) != len(e.LocalStride) {
		return fmt.Errorf("box %v of a local shape %v with strides %v", e.Box, e.LocalShape, e.LocalStride)
	}
	end := max(e.StorageBytes, (e.StorageOffset+plantest.Reach(n, e.LocalStride))*dt.Size())
	if end < 0 || end > maxPerformed || e.StorageOffset < 0 {
		return fmt.Errorf("a storage of %d bytes: this program holds at most %d", end, int64(maxPerformed))
	}
	if grow := end - l.Regions[region]; grow > 0 {
		l.Regions[region] = end
		w.Memory[l.Rank][region] = append(w.Memory[l.Rank][region], make([]byte, grow)...)
	}
	mem, global := w.Memory[l.Rank][region], plantest.RowMajor(e.GlobalShape)
	plantest.Each(n, func(at []int64) {
		flat, local := int64(0), e.StorageOffset
		for d, x := range at {
			flat += (box[2*d] + x) * global[d]
			local += x * e.LocalStride[d]
		}
		putCount(mem[local*dt.Size():], dt, flat)
	})
	return nil
}

// putCount writes an element's flat index; types that can't hold it take its low bits.
func putCount(b []byte, dt plan.DType, flat int64) {
	switch dt {
	case plan.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(flat)))
	case plan.BF16:
		binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(float32(flat))>>16))
	default:
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], uint64(flat))
		copy(b[:dt.Size()], w[:])
	}
}

// counts reports whether a tensor's elements are their own flat indices.
func counts(b []byte, dt plan.DType, n int64) bool {
	want := make([]byte, 8)
	size := dt.Size()
	for i := range n {
		putCount(want, dt, i)
		if !bytes.Equal(b[i*size:(i+1)*size], want[:size]) {
			return false
		}
	}
	return true
}

// wholeDest asks for every tensor, whole or by halves of its last dimension.
func wholeDest(t *plan.Table, split bool) plan.Dest {
	var d plan.Dest
	for i := range t.Len() {
		shape := t.Shape(i)
		d.Params = append(d.Params, plan.Param{Name: t.Name(i), DType: t.DType(i), Shape: shape})
		last := len(shape) - 1
		if !split || last < 0 || shape[last] < 2 {
			d.Copies = append(d.Copies, plan.Copy{Source: t.Name(i), Param: i, Shape: shape, Stride: plantest.RowMajor(shape)})
			continue
		}
		half := shape[last] / 2
		for _, part := range [][2]int64{{0, half}, {half, shape[last] - half}} {
			n := append([]int64(nil), shape...)
			n[last] = part[1]
			op := plan.Op{Name: "narrow", Args: []plan.Arg{{Int: int64(last)}, {Int: part[0]}, {Int: part[1]}}}
			d.Copies = append(d.Copies, plan.Copy{Source: t.Name(i), Ops: []plan.Op{op}, Param: i, Offset: part[0], Shape: n, Stride: plantest.RowMajor(shape)})
		}
	}
	d.LayOut(0)
	return d
}

// checkFlat checks that the flat range of each flattened tensor gives exactly the boxes that the file has.
func (f *layoutFile) checkFlat(t *tally) error {
	for _, r := range f.Ranks {
		boxes := map[string][][]int64{}
		ranges := map[string]*layoutEntry{}
		for i := range r.Entries {
			e := &r.Entries[i]
			if len(e.FlatRange) != 2 {
				continue
			}
			box := []int64{}
			for _, b := range e.Box {
				box = append(box, b[0], b[1])
			}
			boxes[e.Name] = append(boxes[e.Name], box)
			ranges[e.Name] = e
		}
		for name, e := range ranges {
			want := plan.FlatBoxes(e.GlobalShape, e.FlatRange[0], e.FlatRange[1])
			if e.FlatRange[0] < e.FlatRange[1] && fmt.Sprint(want) != fmt.Sprint(boxes[name]) {
				t.wrong++
				t.note("rank %d %q: flat range %v is boxes %v, the file has %v", r.Rank, name, e.FlatRange, want, boxes[name])
			}
		}
	}
	return nil
}
