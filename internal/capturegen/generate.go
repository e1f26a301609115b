package capturegen

import (
	"fmt"
	"slices"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/safetensors"
)

// Generate makes the default capture of a checkpoint for tp destination ranks, one case each.
func Generate(c *checkpoint.Checkpoint, tp int) (*Capture, error) {
	sources := make([]Source, len(c.Tensors()))
	for i, t := range c.Tensors() {
		sources[i] = Source{Name: t.Name, DType: t.DType, Shape: t.Shape}
	}
	return FromSources(sources, c.Config(), tp)
}

// FromSources is Generate for tensors that are known by name, dtype and shape only.
func FromSources(sources []Source, config checkpoint.Config, tp int) (*Capture, error) {
	if tp < 1 || tp > maxTP {
		return nil, fmt.Errorf("generate capture: found %d destination ranks, expected 1 to %d", tp, maxTP)
	}
	f := newFamily(sources, config, int64(tp))
	plans := f.params()
	c := &Capture{
		Schema: Schema, Engine: "drydock default (vLLM's names)", Family: "generated", ModelType: config.ModelType,
		Config: config.Raw, Sources: sources, Notes: f.notes,
	}
	for rank := range tp {
		x := Case{Arch: config.Arch, TP: tp, Rank: rank, Alias: f.alias, Unread: []int{}, Fills: []Fill{}}
		for _, p := range plans {
			x.add(sources, p, int64(rank), int64(tp))
		}
		x.settle(len(sources))
		c.Cases = append(c.Cases, x)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("generate capture: %w", err)
	}
	return c, nil
}

// param is a destination parameter before it is cut for a rank: its pieces lie one after
// the other, each row-major and packed.
type param struct {
	name    string
	dtype   safetensors.DType // empty: the sources'
	pieces  []piece
	experts int64 // > 0: the pieces make a stack with this many entries as its first dimension
	padded  int64 // > 0: rows of the whole padded vocabulary, of which each rank has its part
}

// piece is the cut of one source that goes into a parameter.
type piece struct {
	source int
	dim    int   // dimension that is cut, -1 for none
	parts  int64 // cut in so many equal parts; fewer than ranks: neighbours hold the same part
}

// interval is the part [lo, lo+n) of the piece's dimension that a rank holds.
func (p piece) interval(extent, rank, tp int64) (lo, n int64) {
	n = extent / p.parts // whole: rules choose parts that divide
	return rank * p.parts / tp * n, n
}

// add appends the rank's cut of a parameter with its copies and fills.
func (x *Case) add(sources []Source, p param, rank, tp int64) {
	number := len(x.Params)
	if p.padded > 0 {
		x.addVocabulary(sources, p, rank, tp)
		return
	}
	rows, offset := int64(0), int64(0)
	var shape []int64
	for _, piece := range p.pieces {
		var ops []Op
		shape, ops = cut(sources[piece.source].Shape, piece, rank, tp)
		if p.experts > 0 {
			ops = append(oneExpert(), ops...)
		}
		place := Place{Offset: offset, Shape: shape, Stride: rowMajor(shape)}
		x.Copies = append(x.Copies, Copy{Source: piece.source, Ops: ops, Param: number, Place: place})
		nelems, _ := safetensors.Count(shape) // of a part of a source that was checked
		offset += nelems
		if len(shape) > 0 {
			rows += shape[0]
		}
	}
	x.Params = append(x.Params, Param{Name: p.name, DType: p.typeOf(sources), Shape: p.shape(shape, rows)})
}

// shape of the parameter, from that of its last piece and the rows of all.
func (p param) shape(last []int64, rows int64) []int64 {
	shape := slices.Clone(last)
	if len(shape) > 0 {
		shape[0] = rows
	}
	if p.experts > 0 {
		shape[0] /= p.experts
		shape = append([]int64{p.experts}, shape...)
	}
	return list(shape)
}

// typeOf is the parameter's dtype: the rules fuse only sources of one.
func (p param) typeOf(sources []Source) safetensors.DType {
	if p.dtype != "" {
		return p.dtype
	}
	return sources[p.pieces[0].source].DType
}

// addVocabulary appends the rank's rows of a padded vocabulary: the source's as far as they go, then zeros.
func (x *Case) addVocabulary(sources []Source, p param, rank, tp int64) {
	number, piece := len(x.Params), p.pieces[0]
	shape := slices.Clone(sources[piece.source].Shape)
	vocab, rows := shape[0], p.padded/tp
	lo := min(rank*rows, vocab) // of a small vocabulary the last ranks may have padding only
	have := min(lo+rows, vocab) - lo
	row, _ := safetensors.Count(shape[1:])
	x.place(shape, have, func(place Place) {
		x.Copies = append(x.Copies, Copy{Source: piece.source, Ops: []Op{narrow(0, lo, have)}, Param: number, Place: place})
	})
	x.place(shape, rows-have, func(place Place) {
		place.Offset = have * row
		x.Fills = append(x.Fills, Fill{Param: number, Place: place})
	})
	shape[0] = rows
	x.Params = append(x.Params, Param{Name: p.name, DType: p.typeOf(sources), Shape: shape})
}

// place makes the place of the first rows of a parameter, when there are any.
func (x *Case) place(shape []int64, rows int64, use func(Place)) {
	if rows == 0 {
		return
	}
	part := slices.Clone(shape)
	part[0] = rows
	use(Place{Shape: part, Stride: rowMajor(part)})
}

// settle orders the copies by source and lists the sources that none reads.
func (x *Case) settle(sources int) {
	slices.SortStableFunc(x.Copies, func(a, b Copy) int { return a.Source - b.Source })
	read := make([]bool, sources)
	for _, y := range x.Copies {
		read[y.Source] = true
	}
	for i, r := range read {
		if !r {
			x.Unread = append(x.Unread, i)
		}
	}
}

// cut is the shape that remains of a source, and the op that takes it.
func cut(shape []int64, p piece, rank, tp int64) ([]int64, []Op) {
	out := list(slices.Clone(shape))
	if p.dim < 0 {
		return out, []Op{}
	}
	lo, n := p.interval(shape[p.dim], rank, tp)
	out[p.dim] = n
	return out, []Op{narrow(int64(p.dim), lo, n)}
}

// narrow is the op that vLLM's loaders cut with, also where the cut is the whole.
func narrow(dim, start, length int64) Op {
	return Op{Name: "narrow", Args: []any{dim, start, length}}
}

// oneExpert is how vLLM's loader of expert stacks takes a source that holds one expert: as a stack of one.
func oneExpert() []Op {
	return []Op{
		{Name: "unsqueeze", Args: []any{int64(0)}},
		{Name: "unbind"},
		{Name: "__getitem__", Args: []any{map[string]any{"int": int64(0)}}},
	}
}

// rowMajor are the strides of a packed tensor, elements.
func rowMajor(shape []int64) []int64 {
	strides := make([]int64, len(shape))
	next := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		strides[d] = next
		next *= shape[d]
	}
	return strides
}
