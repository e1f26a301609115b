package plantest

import (
	"fmt"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// Case is a random problem with its answer: ranks that hold tensors cut at random, destinations that want
// views of them, and the arenas that must come out.
type Case struct {
	World  *World
	Table  *plan.Table
	Dests  []plan.Dest
	Arenas [][]byte // as they must be afterwards; bytes that nobody writes are 0xEE
	Full   [][]byte // by Number of the source
	Needed int64    // bytes of sources that some destination wants, each counted once
}

// Number returns the place in Full of a source of the table.
func (c *Case) Number(source int) int { return number(c.Table.Name(source)) }

// Random makes the case of a seed. Most of its geometry repeats nowhere; replicas, overlaps, strided and
// empty shards, several destinations, fused parameters, casts and shared sources all occur.
func Random(seed uint64) (*Case, error) {
	g := &generator{dice: dice(seed), c: &Case{World: &World{}}}
	ranks := 1 + g.IntN(5)
	for i := range 1 + g.IntN(3) {
		dt := []plan.DType{plan.U8, plan.BF16, plan.F32, plan.I64}[g.IntN(4)]
		shape := g.shape()
		g.c.Full = append(g.c.Full, Bytes(Nelems(shape)*dt.Size(), int64(seed)*10+int64(i)))
		g.shards(fmt.Sprintf("source%d", i), dt, shape, ranks)
	}
	t, err := plan.Merge(g.c.World.Layouts)
	if err != nil {
		return nil, err
	}
	g.c.Table = t
	g.c.World.Load(t, func(i int) []byte { return g.c.Full[number(t.Name(i))] })
	g.wanted = make([]map[int64]bool, t.Len())
	for r := range 1 + g.IntN(3) {
		if err := g.dest(r); err != nil {
			return nil, err
		}
	}
	for i := range g.wanted {
		g.c.Needed += int64(len(g.wanted[i])) * t.DType(i).Size()
	}
	return g.c, nil
}

// dice is a small source of random numbers (splitmix64): the cases of a seed are the same everywhere.
type dice uint64

// next returns 64 random bits.
func (d *dice) next() uint64 {
	*d += 0x9E3779B97F4A7C15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Int64N returns a number in [0, n).
func (d *dice) Int64N(n int64) int64 { return int64(d.next() % uint64(n)) }

// IntN returns a number in [0, n).
func (d *dice) IntN(n int) int { return int(d.Int64N(int64(n))) }

// Perm returns the numbers of [0, n) in some order.
func (d *dice) Perm(n int) []int {
	out := make([]int, n)
	for i := range out {
		k := d.IntN(i + 1)
		out[i], out[k] = out[k], i
	}
	return out
}

// generator builds one case.
type generator struct {
	dice
	c      *Case
	wanted []map[int64]bool // by source: flat indices of the elements that some destination reads
}

// number is the place of a source in Case.Full: its name ends with it.
func number(name string) int { return int(name[len(name)-1] - '0') }

// shape returns up to four small dimensions, none of them empty.
func (g *generator) shape() []int64 {
	shape := make([]int64, g.IntN(5))
	for d := range shape {
		shape[d] = 1 + g.Int64N(9)
	}
	return shape
}

// shards cuts a source at random, gives each box to a rank or several, and sometimes adds a box that
// overlaps others.
func (g *generator) shards(name string, dt plan.DType, shape []int64, ranks int) {
	full := make([]int64, 0, 2*len(shape))
	for _, n := range shape {
		full = append(full, 0, n)
	}
	boxes := g.tile(full, 1+g.IntN(6))
	if g.IntN(5) == 0 {
		boxes = append(boxes, g.within(full))
	}
	for _, b := range boxes {
		for range 1 + g.IntN(8)/6 {
			stride, room := g.strides(Sizes(b))
			g.c.World.AddShard(g.IntN(ranks), name, dt, shape, b, stride, room*dt.Size())
		}
	}
}

// tile cuts a box in up to n boxes.
func (g *generator) tile(b []int64, n int) [][]int64 {
	d := -1
	if len(b) > 0 {
		d = g.IntN(len(b) / 2)
	}
	if n <= 1 || d < 0 || b[2*d+1]-b[2*d] < 2 {
		return [][]int64{b}
	}
	at := b[2*d] + g.Int64N(b[2*d+1]-b[2*d]+1) // may cut off nothing: an empty shard
	lo, hi := append([]int64(nil), b...), append([]int64(nil), b...)
	lo[2*d+1], hi[2*d] = at, at
	k := 1 + g.IntN(n-1)
	return append(g.tile(lo, k), g.tile(hi, n-k)...)
}

// within returns a random box inside another one.
func (g *generator) within(b []int64) []int64 {
	out := append([]int64(nil), b...)
	for d := 0; d < len(b); d += 2 {
		out[d] = b[d] + g.Int64N(b[d+1]-b[d])
		out[d+1] = out[d] + 1 + g.Int64N(b[d+1]-out[d])
	}
	return out
}

// strides lays a box out in memory: packed, in another order of dimensions, or with room between rows.
func (g *generator) strides(n []int64) (stride []int64, room int64) {
	order := g.Perm(len(n))
	if g.IntN(3) > 0 {
		for i := range order {
			order[i] = i
		}
	}
	pad := g.Int64N(2) * g.Int64N(4)
	stride = make([]int64, len(n))
	step := int64(1)
	for i := len(order) - 1; i >= 0; i-- {
		stride[order[i]] = step
		step = step*max(n[order[i]], 1) + pad
	}
	return stride, Reach(n, stride)
}

// dest makes a destination of a few parameters, some of several copies.
func (g *generator) dest(rank int) error {
	d := plan.Dest{Rank: rank}
	type part struct {
		dense *Dense
		copy  int
	}
	var parts []part
	for range 1 + g.IntN(4) {
		source := g.IntN(g.c.Table.Len())
		dense, ops := g.chain(g.c.Table.Shape(source))
		g.want(source, dense)
		q := len(d.Params)
		dt := g.c.Table.DType(source)
		if dt == plan.BF16 && g.IntN(3) == 0 {
			dt = plan.F32 // cast on the way
		}
		n := 1 + g.Int64N(3) // copies, one after the other along a new dimension 0
		shape := append([]int64{n}, dense.Shape...)
		stride := g.layout(shape)
		d.Params = append(d.Params, plan.Param{Name: fmt.Sprintf("param%d", q), DType: dt, Shape: []int64{Reach(shape, stride)}, Padded: true})
		for i := range n {
			parts = append(parts, part{dense, len(d.Copies)})
			d.Copies = append(d.Copies, plan.Copy{Source: g.c.Table.Name(source), Ops: ops, Param: q, Offset: i * stride[0], Shape: dense.Shape, Stride: stride[1:]})
		}
	}
	arena := make([]byte, d.LayOut(int64(8<<g.IntN(4))))
	for i := range arena {
		arena[i] = 0xEE
	}
	for _, p := range parts {
		k := &d.Copies[p.copy]
		q := &d.Params[k.Param]
		full := g.c.Full[number(k.Source)]
		if s, _ := g.c.Table.Find(k.Source); g.c.Table.DType(s) != q.DType {
			p.dense.FillWide(arena[q.Offset:], full, k.Offset, k.Stride)
			continue
		}
		p.dense.Fill(arena[q.Offset:], full, k.Offset, k.Stride, q.DType.Size())
	}
	g.c.Dests = append(g.c.Dests, d)
	g.c.Arenas = append(g.c.Arenas, arena)
	return nil
}

// want notes the elements of a source that a destination reads.
func (g *generator) want(source int, d *Dense) {
	if g.wanted[source] == nil {
		g.wanted[source] = map[int64]bool{}
	}
	for _, at := range d.At {
		g.wanted[source][at] = true
	}
}

// layout returns strides of a destination: any order of dimensions, with or without room between.
func (g *generator) layout(shape []int64) []int64 {
	stride, _ := g.strides(shape)
	return stride
}

// chain makes a random op-chain and its dense twin. Reshapes that torch would copy for are left out.
func (g *generator) chain(shape []int64) (*Dense, []plan.Op) {
	d := NewDense(shape)
	var ops []plan.Op
	for range g.IntN(5) {
		next, op, ok := g.step(d)
		if !ok {
			continue
		}
		if _, err := plan.ReplayShape(shape, append(append([]plan.Op(nil), ops...), op)); err != nil {
			continue
		}
		d, ops = next, append(ops, op)
	}
	return d, ops
}

// step makes one random operation and applies its dense twin.
func (g *generator) step(d *Dense) (*Dense, plan.Op, bool) {
	n := len(d.Shape)
	if n == 0 || len(d.At) == 0 {
		return d, Op("unsqueeze", 0), false
	}
	dim := g.IntN(n)
	size := d.Shape[dim]
	switch g.IntN(6) {
	case 0:
		start := g.Int64N(size)
		length := 1 + g.Int64N(size-start)
		return d.Slice(dim, start, start+length, 1), Op("narrow", int64(dim-n), start, length), true
	case 1:
		start := g.Int64N(size)
		step := 1 + g.Int64N(3)
		op := plan.Op{Name: "__getitem__"}
		for range dim {
			op.Args = append(op.Args, plan.Arg{Kind: plan.ArgSlice})
		}
		op.Args = append(op.Args, plan.Arg{Kind: plan.ArgSlice, Start: start, Step: step, Has: plan.HasStart | plan.HasStep})
		return d.Slice(dim, start, size, step), op, true
	case 2:
		i := g.Int64N(size)
		return d.Select(dim, i), Op("select", int64(dim), i-size), true
	case 3:
		order := g.Perm(n)
		op := plan.Op{Name: "permute"}
		for _, k := range order {
			op.Args = append(op.Args, plan.Arg{Int: int64(k)})
		}
		return d.Permute(order), op, true
	case 4:
		out, err := d.Reshape([]int64{int64(len(d.At))})
		return out, Op("view", -1), err == nil
	default:
		for f := int64(2); f < size; f++ {
			if size%f == 0 {
				shape := append(append(append([]int64(nil), d.Shape[:dim]...), f, size/f), d.Shape[dim+1:]...)
				out, err := d.Reshape(shape)
				return out, Op("view", shape...), err == nil
			}
		}
		return d, plan.Op{}, false
	}
}
