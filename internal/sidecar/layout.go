package sidecar

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// pageBytes is what blocks begin at multiples of: a page, which engines and registrations like.
const pageBytes = 4096

// Blocks cuts a box of a tensor as readers like it; each block lies packed in a place of its own. elsize is in bytes.
type Blocks func(shape []int64, box [][2]int64, elsize int64) [][][2]int64

// whole leaves a box as it is.
func whole(_ []int64, box [][2]int64, _ int64) [][][2]int64 { return [][][2]int64{box} }

// geometry is a rank's layout and where each entry's bytes belong in it.
type geometry struct {
	layout *messages.Layout
	places [][]Block // by entry
	source []uint32  // of each entry
	digest string    // of the encoded layout, in hex
}

// builder collects a layout's columns.
type builder struct {
	layout  *messages.Layout
	sources map[string]uint32
	shards  map[uint32][]int // rows of each source
	blocks  Blocks
	tiles   *tiles.Options // nil: no digests
	end     int64          // bytes of the region that are given away
}

// lay finds a place for every entry in one region. Entries of one name are boxes of one tensor.
func lay(rank int, req *AttachRequest, blocks Blocks, o *tiles.Options) (*geometry, error) {
	b := newBuilder(rank, blocks, o)
	g := &geometry{layout: b.layout}
	for i := range req.Entries {
		e := &req.Entries[i]
		source, elsize, err := b.source(e)
		if err != nil {
			return nil, err
		}
		places, err := b.place(e, source, elsize)
		if err != nil {
			return nil, err
		}
		g.places, g.source = append(g.places, places), append(g.source, source)
	}
	b.layout.Regions = []int64{max(pageBytes, b.end)} // a mapping can't be empty
	return g, b.finish(g, req.Groups)
}

// describe takes every entry where the client says that it lies.
func describe(rank int, req *AttachRequest, o *tiles.Options) (*geometry, error) {
	b := newBuilder(rank, whole, o)
	g := &geometry{layout: b.layout}
	for _, r := range req.Endpoint.Regions {
		b.layout.Regions = append(b.layout.Regions, r.Nbytes)
	}
	for i := range req.Entries {
		e := &req.Entries[i]
		source, _, err := b.source(e)
		if err != nil {
			return nil, err
		}
		if len(e.Stride) != 0 && len(e.Stride) != len(e.Shape) {
			return nil, refuse(BadRequest, "entry %d, %q: %d strides for %d dimensions", i, e.Name, len(e.Stride), len(e.Shape))
		}
		b.shard(source, e.Region, e.Offset, e.Box)
		b.layout.Stride = append(b.layout.Stride, strides(e)...)
		g.source = append(g.source, source)
	}
	return g, b.finish(g, req.Groups)
}

// strides are an entry's, or those of packed rows.
func strides(e *Entry) []int64 {
	if len(e.Stride) > 0 {
		return e.Stride
	}
	out := make([]int64, len(e.Box))
	step := int64(1)
	for d := len(e.Box) - 1; d >= 0; d-- {
		out[d] = step
		step *= max(1, e.Box[d][1]-e.Box[d][0])
	}
	return out
}

func newBuilder(rank int, blocks Blocks, o *tiles.Options) *builder {
	return &builder{
		layout: &messages.Layout{Rank: rank}, sources: map[string]uint32{}, shards: map[uint32][]int{}, blocks: blocks, tiles: o,
	}
}

// source is the number of an entry's tensor, which is made at its first entry and must be the same at all others.
func (b *builder) source(e *Entry) (source uint32, elsize int64, err error) {
	dtype, err := messages.ParseDType(e.DType)
	if err != nil || dtype.Size() == 0 {
		return 0, 0, refuse(BadRequest, "entry %q has element type %q, which can't be published (smaller than a byte: publish it as U8)", e.Name, e.DType)
	}
	if len(e.Shape) > messages.MaxDims || len(e.Box) != len(e.Shape) {
		return 0, 0, refuse(BadRequest, "entry %q: a box of %d dimensions in a shape of %d; at most %d", e.Name, len(e.Box), len(e.Shape), messages.MaxDims)
	}
	for d, x := range e.Box {
		if x[0] < 0 || x[1] < x[0] || x[1] > e.Shape[d] || e.Shape[d] > messages.MaxDim {
			return 0, 0, refuse(BadRequest, "entry %q: [%d, %d) is not in dimension %d of %d", e.Name, x[0], x[1], d, e.Shape[d])
		}
	}
	l := b.layout
	if s, ok := b.sources[e.Name]; ok {
		if l.DTypes[s] != dtype || !slices.Equal(l.Shape(int(s)), e.Shape) {
			return 0, 0, refuse(BadRequest, "entries of %q differ: %v %v and %v %v", e.Name, l.DTypes[s], l.Shape(int(s)), dtype, e.Shape)
		}
		return s, dtype.Size(), nil
	}
	source = b.add(e.Name, dtype, e.Shape)
	return source, dtype.Size(), nil
}

func (b *builder) add(name string, dtype messages.DType, shape []int64) uint32 {
	l := b.layout
	source := uint32(len(l.Names))
	b.sources[name] = source
	l.Names, l.DTypes = append(l.Names, name), append(l.DTypes, dtype)
	l.Shapes = append(l.Shapes, shape...)
	l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
	if b.tiles != nil {
		l.Grid = append(l.Grid, tiles.ChooseGrid(shape, dtype.Size(), *b.tiles)...)
	}
	return source
}

// place gives each block of an entry the next free pages.
func (b *builder) place(e *Entry, source uint32, elsize int64) ([]Block, error) {
	var places []Block
	for _, box := range b.blocks(e.Shape, e.Box, elsize) {
		n, ok := boxBytes(box, elsize)
		if !ok || n > maxArena-b.end {
			return nil, refuse(LimitExceeded, "entry %q: the arena would be larger than %d bytes", e.Name, int64(maxArena))
		}
		b.shard(source, 0, b.end, box)
		places = append(places, Block{Box: box, Offset: b.end})
		b.end += (n + pageBytes - 1) / pageBytes * pageBytes
	}
	return places, nil
}

// maxArena bounds a slot in bytes, far beyond any memory, so that sums can't overflow.
const maxArena = 1 << 48

// boxBytes is the size of a box; false when that overflows.
func boxBytes(box [][2]int64, elsize int64) (int64, bool) {
	n, ok := uint64(elsize), true
	for _, x := range box {
		hi, lo := bits.Mul64(n, uint64(x[1]-x[0]))
		n, ok = lo, ok && hi == 0
	}
	return int64(n), ok && n <= maxArena || slices.ContainsFunc(box, func(x [2]int64) bool { return x[0] == x[1] })
}

func (b *builder) shard(source, region uint32, offset int64, box [][2]int64) {
	l := b.layout
	b.shards[source] = append(b.shards[source], len(l.Source))
	l.Source, l.Region, l.Offset = append(l.Source, source), append(l.Region, region), append(l.Offset, offset)
	for _, x := range box {
		l.Box = append(l.Box, x[0], x[1])
	}
}

// finish adds the groups and has the wire format's own checks look at the whole.
func (b *builder) finish(g *geometry, groups []Group) error {
	for _, group := range groups {
		kind, ok := map[string]messages.GroupKind{"alias": messages.GroupAlias, "atomic": messages.GroupAtomic}[group.Kind]
		if !ok {
			return refuse(BadRequest, "group of kind %q: expected alias or atomic", group.Kind)
		}
		b.layout.Groups = append(b.layout.Groups, messages.Group{Kind: kind, Members: group.Members})
		if kind == messages.GroupAlias && len(group.Members) > 1 {
			b.alias(group.Members)
		}
	}
	if len(b.layout.Names) == 0 {
		b.layout.Grid = nil
	}
	encoded, err := messages.EncodeLayout(b.layout)
	if err != nil {
		return fmt.Errorf("describe rank %d: %w", b.layout.Rank, err)
	}
	sum := sha256.Sum256(encoded)
	g.digest = hex.EncodeToString(sum[:])
	return nil
}

// alias gives other names of a tensor its shards, in the same place: a destination may ask for any of the names.
func (b *builder) alias(members []string) {
	l := b.layout
	lead, ok := b.sources[members[0]]
	if !ok {
		return // another rank holds it
	}
	dims := make([]int, len(l.Source)+1) // the first dimension of each row
	for k, s := range l.Source {
		dims[k+1] = dims[k] + l.NDim(int(s))
	}
	for _, name := range members[1:] {
		if _, there := b.sources[name]; there {
			continue
		}
		source := b.add(name, l.DTypes[lead], slices.Clone(l.Shape(int(lead))))
		for _, row := range b.shards[lead] {
			l.Source, l.Region, l.Offset = append(l.Source, source), append(l.Region, l.Region[row]), append(l.Offset, l.Offset[row])
			l.Box = append(l.Box, l.Box[2*dims[row]:2*dims[row+1]]...)
			if l.Stride != nil {
				l.Stride = append(l.Stride, l.Stride[dims[row]:dims[row+1]]...)
			}
		}
	}
}
