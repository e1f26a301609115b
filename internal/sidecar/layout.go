package sidecar

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/internal/tiles"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// pageBytes is what blocks begin at multiples of: a page, which engines and registrations like.
const pageBytes = 4096

// geometry is a rank's layout and where each entry's bytes belong in it.
type geometry struct {
	layout *messages.Layout
	places [][]Block // by entry
	source []uint32  // of each entry
	like   []int     // of each shard beyond those of the entries, which another name brought: the shard that it shares
	bare   []uint32  // sources of which the trainer makes no digests, ascending
	digest string    // of the encoded layout, in hex
}

// has refuses names that are none of the layout's.
func (g *geometry) has(names []string) error {
	if len(names) == 0 {
		return nil
	}
	known := make(map[string]bool, len(g.layout.Names))
	for _, name := range g.layout.Names {
		known[name] = true
	}
	for _, name := range names {
		if !known[name] {
			return refuse(BadRequest, "changed tensor %q is none of rank %d's", name, g.layout.Rank)
		}
	}
	return nil
}

// builder collects a layout's columns.
type builder struct {
	layout  *messages.Layout
	sources map[string]uint32
	end     int64 // bytes of the region that are given away
	like    []int // see geometry
	bare    map[uint32]bool
}

// lay finds a place for every entry in one region, and then cuts entries in the blocks that o asks for, each entry where
// it lies. Entries of one name are boxes of one tensor. What needs more than most bytes is refused before anything that
// grows with it is made.
func lay(rank int, req *AttachRequest, o served.Options, most int64) (*geometry, error) {
	b, g := newBuilder(rank), &geometry{}
	for i := range req.Entries {
		e := &req.Entries[i]
		source, elsize, err := b.source(e)
		if err != nil {
			return nil, err
		}
		if err := b.place(e, source, elsize); err != nil {
			return nil, err
		}
		g.source = append(g.source, source)
	}
	if b.end > most {
		return nil, refuse(NoMemory, "a slot of rank %d needs %d bytes, this host has %d for it", rank, b.end, most)
	}
	b.layout.Regions = []int64{max(pageBytes, b.end)} // a mapping can't be empty
	if err := errors.Join(check(b.layout), b.digested(req)); err != nil {
		return nil, err
	}
	cut, err := served.New(b.layout, o)
	if err != nil {
		return nil, err
	}
	g.places = blocks(b.layout, cut.Layout())
	b.layout = clone(cut.Layout())
	return g, b.finish(g, req.Groups)
}

// clone lets the columns grow without touching those of the original.
func clone(l *messages.Layout) *messages.Layout {
	c := *l
	c.Names, c.DTypes, c.ShapeEnd, c.Shapes = slices.Clone(l.Names), slices.Clone(l.DTypes), slices.Clone(l.ShapeEnd), slices.Clone(l.Shapes)
	return &c
}

// blocks lists what became of each shard of the plain layout: the blocks of one follow each other, and have all its bytes.
func blocks(plain, cut *messages.Layout) [][]Block {
	places := make([][]Block, len(plain.Source))
	row, at, dim := 0, 0, 0
	for k, s := range plain.Source {
		n := plain.NDim(int(s))
		for rest := nbytesOf(plain, int(s), plain.Box[2*dim:2*(dim+n)]); ; row++ {
			box := cut.Box[2*at : 2*(at+n)]
			b := Block{Offset: cut.Offset[row], Box: make([][2]int64, n)}
			for d := range n {
				b.Box[d] = [2]int64{box[2*d], box[2*d+1]}
			}
			places[k] = append(places[k], b)
			at += n
			if rest -= nbytesOf(cut, int(s), box); rest <= 0 {
				row++
				break
			}
		}
		dim += n
	}
	return places
}

func nbytesOf(l *messages.Layout, source int, box []int64) int64 {
	n := l.DTypes[source].Size()
	for d := 0; d < len(box); d += 2 {
		n *= box[d+1] - box[d]
	}
	return n
}

// check has the wire format's own checks look at a layout.
func check(l *messages.Layout) error {
	if _, err := messages.EncodeLayout(l); err != nil {
		return fmt.Errorf("describe rank %d: %w", l.Rank, err)
	}
	return nil
}

// describe takes every entry where the client says that it lies.
func describe(rank int, req *AttachRequest, o *tiles.Options) (*geometry, error) {
	b, g := newBuilder(rank), &geometry{}
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
	if err := b.digested(req); err != nil {
		return nil, err
	}
	if o != nil {
		l := b.layout
		for i, name := range l.Names {
			l.Grid = append(l.Grid, served.Grid(name, l.Shape(i), l.DTypes[i].Size(), *o)...)
		}
	}
	return g, b.finish(g, req.Groups)
}

// digested notes of which tensors the trainer makes no digests.
func (b *builder) digested(req *AttachRequest) error {
	said := map[string]bool{}
	for i := range req.Entries {
		e := &req.Entries[i]
		if before, ok := said[e.Name]; ok && before != e.Undigested {
			return refuse(BadRequest, "entries of %q differ in whether they are digested", e.Name)
		}
		if e.Undigested && (!req.Digests || req.Endpoint == nil) {
			return refuse(BadRequest, "entry %q is said not to be digested, where nothing is", e.Name)
		}
		said[e.Name] = e.Undigested
		if e.Undigested {
			b.bare[b.sources[e.Name]] = true
		}
	}
	return nil
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

func newBuilder(rank int) *builder {
	return &builder{layout: &messages.Layout{Rank: rank}, sources: map[string]uint32{}, bare: map[uint32]bool{}}
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
	return source
}

// place gives an entry the next free pages.
func (b *builder) place(e *Entry, source uint32, elsize int64) error {
	n, ok := boxBytes(e.Box, elsize)
	if !ok || n > maxArena-b.end {
		return refuse(LimitExceeded, "entry %q: the arena would be larger than %d bytes", e.Name, int64(maxArena))
	}
	b.shard(source, 0, b.end, e.Box)
	b.end += (n + pageBytes - 1) / pageBytes * pageBytes
	return nil
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
	l.Source, l.Region, l.Offset = append(l.Source, source), append(l.Region, region), append(l.Offset, offset)
	for _, x := range box {
		l.Box = append(l.Box, x[0], x[1])
	}
}

// finish adds the groups, and digests the whole.
func (b *builder) finish(g *geometry, groups []Group) error {
	g.layout = b.layout
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
	g.like, g.bare = b.like, slices.Sorted(maps.Keys(b.bare))
	encoded, err := messages.EncodeLayout(b.layout)
	if err != nil {
		return fmt.Errorf("describe rank %d: %w", b.layout.Rank, err)
	}
	sum := sha256.Sum256(encoded)
	g.digest = hex.EncodeToString(sum[:])
	return nil
}

// alias gives other names of a tensor its shards and tiles, in the same place: a destination may ask for any of the names.
func (b *builder) alias(members []string) {
	l := b.layout
	lead, ok := b.sources[members[0]]
	if !ok {
		return // another rank holds it
	}
	n, rows := l.NDim(int(lead)), []int{}
	dims := []int{} // the first dimension of each of rows
	at := 0
	for k, s := range l.Source {
		if s == lead {
			rows, dims = append(rows, k), append(dims, at)
		}
		at += l.NDim(int(s))
	}
	for _, name := range members[1:] {
		if _, there := b.sources[name]; there {
			continue
		}
		first := int(l.ShapeEnd[lead]) - n
		if l.Grid != nil {
			l.Grid = append(slices.Clone(l.Grid), l.Grid[first:first+n]...)
		}
		source := b.add(name, l.DTypes[lead], slices.Clone(l.Shape(int(lead))))
		if b.bare[lead] {
			b.bare[source] = true
		}
		b.like = append(b.like, rows...)
		for i, row := range rows {
			l.Source, l.Region, l.Offset = append(l.Source, source), append(l.Region, l.Region[row]), append(l.Offset, l.Offset[row])
			l.Box = append(l.Box, l.Box[2*dims[i]:2*(dims[i]+n)]...)
			if l.Stride != nil {
				l.Stride = append(l.Stride, l.Stride[dims[i]:dims[i]+n]...)
			}
		}
	}
}
