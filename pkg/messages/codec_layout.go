package messages

import (
	"encoding/binary"
	"math"

	"github.com/drydock-rl/drydock/pkg/messages/internal/columns"
)

const layoutSchema = "drydock.layout.v1"

// wireLayout is a layout as it travels. docs/wire.md explains each column.
type wireLayout struct {
	Schema   string      `msgpack:"schema"`
	Rank     uint64      `msgpack:"rank"`
	Regions  []byte      `msgpack:"regions"`
	NRegions uint64      `msgpack:"nregions"`
	Sources  []byte      `msgpack:"sources"` // a wireSources, packed on its own so that equal ones are found by their bytes
	NShards  uint64      `msgpack:"nshards"`
	Source   []byte      `msgpack:"source"`
	Region   []byte      `msgpack:"region"`
	Offset   []byte      `msgpack:"offset"`
	Box      wireTuples  `msgpack:"box"`
	Stride   *wireTuples `msgpack:"stride,omitempty"`
	Groups   []wireGroup `msgpack:"groups,omitempty"`
}

func (w *wireLayout) fields() fields {
	return fields{
		"schema": &w.Schema, "rank": &w.Rank, "regions": &w.Regions, "nregions": &w.NRegions, "sources": &w.Sources,
		"nshards": &w.NShards, "source": &w.Source, "region": &w.Region, "offset": &w.Offset,
		"box": &w.Box, "stride": optional[wireTuples]{&w.Stride}, "groups": &w.Groups,
	}
}

// wireSources are the columns per source.
type wireSources struct {
	NSources uint64     `msgpack:"nsources"`
	Prefix   []byte     `msgpack:"prefix"`
	Suffix   []byte     `msgpack:"suffix"`
	Text     []byte     `msgpack:"text"`
	DType    []byte     `msgpack:"dtype"` // one byte per source
	Shape    wireTuples `msgpack:"shape"`
	Grid     []byte     `msgpack:"grid,omitempty"` // plain: tile extents of each dictionary shape
}

func (w *wireSources) fields() fields {
	return fields{
		"nsources": &w.NSources, "prefix": &w.Prefix, "suffix": &w.Suffix, "text": &w.Text,
		"dtype": &w.DType, "shape": &w.Shape, "grid": &w.Grid,
	}
}

// wireTuples is a column of short integer tuples: a dictionary, and for each row the
// index of its tuple.
type wireTuples struct {
	Index  []byte `msgpack:"index"`  // deltas, one per row
	Lens   []byte `msgpack:"lens"`   // one byte per tuple: how many values
	Values []byte `msgpack:"values"` // plain, concatenated
}

func (w *wireTuples) fields() fields {
	return fields{"index": &w.Index, "lens": &w.Lens, "values": &w.Values}
}

type wireGroup struct {
	Kind    uint64   `msgpack:"kind"`
	Members []string `msgpack:"members"`
}

// EncodeLayout writes a layout as a blob. Equal layouts give equal bytes.
func EncodeLayout(l *Layout) ([]byte, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	src, err := pack(encodeSources(l))
	if err != nil {
		return nil, err
	}
	w := wireLayout{
		Schema: layoutSchema, Rank: uint64(l.Rank),
		Regions: columns.AppendDeltas(nil, l.Regions), NRegions: uint64(len(l.Regions)),
		Sources: src, NShards: uint64(len(l.Source)),
		Source: columns.AppendDeltas(nil, l.Source),
		Region: columns.AppendDeltas(nil, l.Region),
		Offset: columns.AppendDeltas(nil, l.Offset),
		Box:    encodeBoxes(l),
	}
	if l.Stride != nil {
		st := encodeStrides(l)
		w.Stride = &st
	}
	for _, g := range l.Groups {
		w.Groups = append(w.Groups, wireGroup{Kind: uint64(g.Kind), Members: g.Members})
	}
	plain, err := pack(&w)
	if err != nil {
		return nil, err
	}
	out, err := squeeze(plain)
	if err != nil {
		return nil, err
	}
	return out, limited(layoutSchema, "blob bytes", int64(len(out)), MaxBlob)
}

func encodeSources(l *Layout) *wireSources {
	names := columns.EncodeNames(l.Names)
	w := &wireSources{
		NSources: uint64(len(l.Names)),
		Prefix:   names.Prefix, Suffix: names.Suffix, Text: names.Text,
		DType: make([]byte, len(l.DTypes)),
	}
	for i, d := range l.DTypes {
		w.DType[i] = byte(d)
	}
	// Shape and grid go into one dictionary: a shape that is tiled in two ways, for
	// its element sizes, has two entries.
	dict := newTupleDict(len(l.Names))
	var grid []byte
	for i := range l.Names {
		shape := l.Shape(i)
		var cells []int64
		if l.Grid != nil {
			cells = l.cells(i)
		}
		if dict.add(shape, cells) {
			grid = columns.AppendPlain(grid, cells)
		}
	}
	w.Shape, w.Grid = dict.wire(), grid
	return w
}

func encodeBoxes(l *Layout) wireTuples {
	dict := newTupleDict(len(l.Source))
	at := 0
	var row [2 * MaxDims]int64
	for _, s := range l.Source {
		n := 2 * l.NDim(int(s))
		// Extents instead of upper bounds: the same for the shards of every rank.
		for d := 0; d < n; d += 2 {
			row[d], row[d+1] = l.Box[at+d], l.Box[at+d+1]-l.Box[at+d]
		}
		dict.add(row[:n], nil)
		at += n
	}
	return dict.wire()
}

func encodeStrides(l *Layout) wireTuples {
	dict := newTupleDict(len(l.Source))
	at := 0
	for _, s := range l.Source {
		n := l.NDim(int(s))
		dict.add(l.Stride[at:at+n], nil)
		at += n
	}
	return dict.wire()
}

// tupleDict gathers a wireTuples.
type tupleDict struct {
	seen   map[string]uint32
	index  []uint32
	lens   []byte
	values []byte
	key    []byte
}

func newTupleDict(rows int) *tupleDict {
	return &tupleDict{seen: make(map[string]uint32), index: make([]uint32, 0, rows)}
}

// add appends one row. It says whether the tuple is new; also, which is compared but
// not stored, tells apart tuples that differ only in what the caller keeps beside them.
func (d *tupleDict) add(tuple, also []int64) bool {
	d.key = d.key[:0]
	for _, v := range tuple {
		d.key = binary.AppendUvarint(d.key, uint64(v))
	}
	n := len(d.key)
	d.key = binary.AppendUvarint(d.key, uint64(len(tuple)))
	for _, v := range also {
		d.key = binary.AppendUvarint(d.key, uint64(v))
	}
	i, old := d.seen[string(d.key)]
	if !old {
		i = uint32(len(d.lens))
		d.seen[string(d.key)] = i
		d.lens = append(d.lens, byte(len(tuple)))
		d.values = append(d.values, d.key[:n]...)
	}
	d.index = append(d.index, i)
	return !old
}

func (d *tupleDict) wire() wireTuples {
	return wireTuples{Index: columns.AppendDeltas(nil, d.index), Lens: d.lens, Values: d.values}
}

// DecodeLayout reads what EncodeLayout wrote, or a publisher in another language. The
// result has passed every check that can be made without other ranks.
func DecodeLayout(b []byte) (*Layout, error) { return decodeLayout(b, nil) }

// decodeLayout lets the source columns be shared with layouts decoded before.
func decodeLayout(b []byte, catalogues *catalogueCache) (*Layout, error) {
	var w wireLayout
	var s scratch
	defer s.release() // a layout keeps no byte of its payload
	plain, err := expand(layoutSchema, b, s.room)
	if err != nil {
		return nil, err
	}
	if err := unpackPlain(layoutSchema, plain, &w); err != nil {
		return nil, err
	}
	if err := checkSchema(layoutSchema, w.Schema); err != nil {
		return nil, err
	}
	if err := w.checkCounts(); err != nil {
		return nil, err
	}
	src, err := catalogues.sources(w.Sources)
	if err != nil {
		return nil, err
	}
	l := &Layout{
		Rank: int(w.Rank), Names: src.names, DTypes: src.dtypes,
		ShapeEnd: src.shapeEnd, Shapes: src.shapes, Grid: src.grid,
	}
	if l.Regions, err = columns.Deltas[int64](w.Regions, int(w.NRegions), math.MaxInt64); err != nil {
		return nil, malformed(layoutSchema, "regions", "%v", err)
	}
	if err := l.decodeShards(&w); err != nil {
		return nil, err
	}
	for _, g := range w.Groups {
		l.Groups = append(l.Groups, Group{Kind: GroupKind(min(g.Kind, math.MaxUint8)), Members: g.Members})
	}
	return l, l.validateShards()
}

func (w *wireLayout) checkCounts() error {
	for _, c := range []struct {
		what       string
		have, most uint64
	}{
		{"rank", w.Rank, MaxWorld - 1},
		{"regions", w.NRegions, MaxRegions},
		{"shards", w.NShards, MaxShards},
		{"groups", uint64(len(w.Groups)), MaxGroups},
	} {
		if err := limited(layoutSchema, c.what, int64(min(c.have, math.MaxInt64)), int64(c.most)); err != nil {
			return err
		}
	}
	return nil
}

func (l *Layout) decodeShards(w *wireLayout) error {
	n := int(w.NShards)
	var err error
	if l.Source, err = columns.Deltas[uint32](w.Source, n, int64(len(l.Names))-1); err != nil {
		return malformed(layoutSchema, "source", "%v", err)
	}
	if l.Region, err = columns.Deltas[uint32](w.Region, n, int64(len(l.Regions))-1); err != nil {
		return malformed(layoutSchema, "region", "%v", err)
	}
	if l.Offset, err = columns.Deltas[int64](w.Offset, n, math.MaxInt64); err != nil {
		return malformed(layoutSchema, "offset", "%v", err)
	}
	box, err := readTuples(w.Box, n, MaxDim)
	if err == nil {
		err = box.toBounds()
	}
	if err != nil {
		return malformed(layoutSchema, "box", "%v", err)
	}
	l.Box = box.expand()
	if w.Stride != nil {
		stride, err := readTuples(*w.Stride, n, MaxDim)
		if err != nil {
			return malformed(layoutSchema, "stride", "%v", err)
		}
		l.Stride = stride.expand()
	}
	return nil
}
