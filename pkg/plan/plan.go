package plan

import "iter"

// Plan is the finished answer: what to read, and what to do with it. It holds offsets relative to regions
// and arenas only, so it stays right when addresses, incarnations and versions change, as long as the
// layouts don't. It is read-only and safe for concurrent use.
//
// Its size is eight bytes for each read: a read is a source and a line of that source's template, and
// segments, scatters and pieces are made of both when asked for.
type Plan struct {
	t         *Table
	g         *gatherer // what the copies come down to, for planning anew
	dests     []Dest
	o         Options
	templates []*template
	insts     []instance
	bases     []base
	recs      []rec
	batches   []batchRange
	fills     []FillOp
	stats     Stats
	classic   []ClassicCounts
	prices    []Costs // by rank of the table
	excluded  []bool  // by rank of the table, when the plan was made; nil: none
}

// instance is one source of the plan: its template, and where its uses lie in the arenas.
type instance struct {
	source uint32
	tmpl   uint32
	base   uint32 // bases[base+u] belongs to use u
}

// base is where a use of an instance begins in an arena.
type base struct {
	dest int32
	copy int32
	off  int64 // bytes from the arena's start
}

// rec is one read of an instance.
type rec struct{ inst, read uint32 }

// batchRange is a batch, and which reads it is made of.
type batchRange struct {
	from, to uint32 // recs
	rank     uint32 // index in Table.ranks
	Batch
}

// stagingAlign is what each read's staging is aligned to, so that elements of any type are.
const stagingAlign = 64

// alignStaging rounds bytes up.
func alignStaging(n int64) int64 { return (n + stagingAlign - 1) &^ (stagingAlign - 1) }

// Batches returns the number of batches, in the order in which they are best posted.
func (p *Plan) Batches() int { return len(p.batches) }

// Batch returns batch i.
func (p *Plan) Batch(i int) Batch { return p.batches[i].Batch }

// FillOps returns the constant regions. They may be written before, between or after the batches.
func (p *Plan) FillOps() []FillOp { return p.fills }

// Stats sums the plan up.
func (p *Plan) Stats() Stats { return p.stats }

// Classic returns what the reference planner would say of each destination, if Options.Classic was set.
func (p *Plan) Classic() []ClassicCounts { return p.classic }

// Table returns the table that the plan was made of.
func (p *Plan) Table() *Table { return p.t }

// place is where a read finds its shard, and where its staging begins.
type place struct {
	inst    *instance
	tmpl    *template
	read    *read
	region  uint32
	shard   uint32 // index in the rank's layout
	offset  int64  // bytes from the region's base to the shard's first element
	staging int64  // bytes from the staging's start
}

// reads yields the places of a batch's reads.
func (p *Plan) reads(i int, yield func(pl *place) bool) {
	b := &p.batches[i]
	r := &p.t.ranks[b.rank]
	var pl place
	staging := int64(0)
	for _, rc := range p.recs[b.from:b.to] {
		pl.inst = &p.insts[rc.inst]
		pl.tmpl = p.templates[pl.inst.tmpl]
		pl.read = &pl.tmpl.reads[rc.read]
		pl.shard = r.shard(pl.inst.source, holderOn(pl.tmpl.holders[pl.read.slot], b.rank))
		pl.region, pl.offset = r.region[pl.shard], r.offset[pl.shard]
		pl.staging = staging
		staging += alignStaging(pl.read.staging)
		if !yield(&pl) {
			return
		}
	}
}

// holderOn returns which of the rank's shards of the source serves a slot.
func holderOn(from []holder, rank uint32) uint32 {
	for i := range from {
		if from[i].rank == rank {
			return from[i].k
		}
	}
	panic("plan: a read was given to a rank that does not hold it")
}

// Segments yields the reads of batch i.
func (p *Plan) Segments(i int) iter.Seq[Segment] {
	return func(yield func(Segment) bool) {
		p.reads(i, func(pl *place) bool {
			for k := pl.read.segs; k < pl.read.segsEnd; k++ {
				if !yield(p.segment(pl, &pl.tmpl.segs[k])) {
					return false
				}
			}
			return true
		})
	}
}

// segment puts a template's segment in its place.
func (p *Plan) segment(pl *place, s *templateSeg) Segment {
	out := Segment{Region: pl.region, Src: pl.offset + s.src, Run: s.run, N: s.n, SrcStride: s.srcStride, DstStride: s.dstStr}
	if s.use == toStaging {
		out.Dest, out.Dst = Staging, pl.staging+s.dst
	} else {
		b := &p.bases[pl.inst.base+uint32(s.use)]
		out.Dest, out.Dst = int(b.dest), b.off+s.dst
	}
	return out
}

// Scatters yields what to do with the staging of batch i once it is read. Slices belong to the plan.
func (p *Plan) Scatters(i int) iter.Seq[Scatter] {
	return func(yield func(Scatter) bool) {
		if p.batches[i].Staging == 0 {
			return
		}
		p.reads(i, func(pl *place) bool {
			for k := pl.read.scatters; k < pl.read.scatsEnd; k++ {
				s := &pl.tmpl.scatters[k]
				b := &p.bases[pl.inst.base+uint32(s.use)]
				types := pl.tmpl.fromTo[s.use]
				if !yield(Scatter{
					Src: pl.staging + s.src, Dest: int(b.dest), Dst: b.off + s.dst, From: types[0], To: types[1],
					Shape: s.shape, SrcStride: s.srcStr, DstStride: s.dstSt, Overflow: p.o.Overflow,
				}) {
					return false
				}
			}
			return true
		})
	}
}

// Pieces yields the boxes of shards that batch i brings. The piece is reused between yields; its slices
// belong to the plan.
func (p *Plan) Pieces(i int) iter.Seq[*Piece] {
	return func(yield func(*Piece) bool) {
		rank := p.batches[i].Rank
		var out Piece
		p.reads(i, func(pl *place) bool {
			for k := pl.read.pieces; k < pl.read.piecesEnd; k++ {
				t := &pl.tmpl.pieces[k]
				out = Piece{Source: int(pl.inst.source), Rank: rank, Shard: int(pl.shard), Lo: t.lo, Hi: t.hi, Stride: t.stride}
				if t.use == toStaging {
					out.Dest, out.Off = Staging, pl.staging+t.off
				} else {
					b := &p.bases[pl.inst.base+uint32(t.use)]
					out.Dest, out.Off = int(b.dest), b.off+t.off
				}
				if !yield(&out) {
					return false
				}
			}
			return true
		})
	}
}
