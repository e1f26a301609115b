package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Explanation says where the bytes of one parameter come from, and why they are read as they are.
type Explanation struct {
	Param   string          `json:"param"`
	Dest    int             `json:"dest"` // rank
	DType   string          `json:"dtype"`
	Shape   []int64         `json:"shape"`
	Offset  int64           `json:"offset"` // bytes in the arena
	Nbytes  int64           `json:"nbytes"`
	Aliases []string        `json:"aliases,omitempty"`
	Copies  []ExplainedCopy `json:"copies"`
	Fills   []string        `json:"fills,omitempty"`
}

// ExplainedCopy is one copy into the parameter.
type ExplainedCopy struct {
	Copy   int             `json:"copy"`
	Source string          `json:"source"`
	From   string          `json:"from"` // element type as served
	View   string          `json:"view"` // the op-chain
	Dst    int64           `json:"dst"`  // bytes in the arena
	Reads  []ExplainedRead `json:"reads"`
}

// ExplainedRead is one read that serves the copy.
type ExplainedRead struct {
	Rank     int     `json:"rank"`
	Region   uint32  `json:"region"`
	Offset   int64   `json:"offset"` // bytes in the region
	Box      []int64 `json:"box"`    // lo0,hi0,… of the parameter's elements: the smallest box around what it brings
	Batch    int     `json:"batch"`
	Replicas []int   `json:"replicas,omitempty"` // ranks that hold the same
	Shape    string  `json:"shape"`
	Segments int     `json:"segments"`
	Runs     int64   `json:"runs"`
	Wire     int64   `json:"wire"`    // bytes
	Needed   int64   `json:"needed"`  // bytes, of all that the read serves
	Staging  int64   `json:"staging"` // bytes
	Cost     float64 `json:"cost_us"` // by the cost model
	Why      string  `json:"why"`
}

// Explain tells where each byte of a parameter comes from.
func (p *Plan) Explain(dest int, param string) (*Explanation, error) {
	if dest < 0 || dest >= len(p.dests) {
		return nil, fmt.Errorf("plan: explain: destination %d of %d", dest, len(p.dests))
	}
	d := &p.dests[dest]
	if name, ok := d.Alias[param]; ok {
		param = name
	}
	at := -1
	for i := range d.Params {
		if d.Params[i].Name == param {
			at = i
		}
	}
	if at < 0 {
		return nil, fmt.Errorf("plan: explain: %w: %q%s", ErrUnknownParam, param, d.resembling(param))
	}
	q := &d.Params[at]
	if q.Excluded != "" {
		return nil, fmt.Errorf("plan: explain: %w: %q: %s", ErrExcluded, param, q.Excluded)
	}
	e := &Explanation{Param: q.Name, Dest: d.Rank, DType: q.DType.String(), Shape: q.Shape, Offset: q.Offset, Nbytes: q.nbytes()}
	for other, name := range d.Alias {
		if name == q.Name {
			e.Aliases = append(e.Aliases, other)
		}
	}
	slices.Sort(e.Aliases)
	p.explainCopies(dest, at, e)
	for i := range p.fills {
		if f := &p.fills[i]; f.Dest == dest && f.Off >= q.Offset && f.Off < q.Offset+q.nbytes() {
			e.Fills = append(e.Fills, f.String())
		}
	}
	return e, nil
}

// resembling names a few parameters that somebody who wrote the name may have meant: those that hold it, or
// begin like it as far as the last dot.
func (d *Dest) resembling(name string) string {
	const shown = 3
	var near []string
	for _, part := range []string{name, name[:strings.LastIndexByte(name, '.')+1], name[strings.LastIndexByte(name, '.')+1:]} {
		for i := range d.Params {
			if q := d.Params[i].Name; part != "" && strings.Contains(q, part) && len(near) < shown && !slices.Contains(near, q) {
				near = append(near, q)
			}
		}
	}
	if len(near) == 0 {
		return fmt.Sprintf("; there are %d others", len(d.Params))
	}
	return fmt.Sprintf("; is it one of %q?", near)
}

// explainCopies lists the parameter's copies, and under each the reads that serve it.
func (p *Plan) explainCopies(dest, param int, e *Explanation) {
	d := &p.dests[dest]
	index := map[int32]int{}
	for k := range d.Copies {
		c := &d.Copies[k]
		source, ok := p.t.index[c.Source]
		if c.Param != param || !ok {
			continue
		}
		index[int32(k)] = len(e.Copies)
		e.Copies = append(e.Copies, ExplainedCopy{
			Copy: k, Source: c.Source, From: p.t.dtypes[source].String(),
			View: opsString(c.Ops), Dst: d.Params[param].Offset + c.Offset*d.Params[param].DType.Size(),
		})
	}
	for i := range p.batches {
		p.reads(i, func(pl *place) bool {
			last := int32(-1)
			for b := range p.usesOf(pl) {
				if int(b.dest) != dest || b.copy == last {
					continue
				}
				if k, ok := index[b.copy]; ok {
					r := p.explainRead(i, pl)
					lo, hi := pl.extent(b, p)
					r.Box = d.Params[param].boxAround(lo-d.Params[param].Offset, hi-d.Params[param].Offset)
					e.Copies[k].Reads = append(e.Copies[k].Reads, r)
					last = b.copy
				}
			}
			return true
		})
	}
}

// extent returns the bytes of the arena from the first to past the last that a read brings for one copy.
func (pl *place) extent(b *base, p *Plan) (lo, hi int64) {
	t := pl.tmpl
	lo, hi = -1, -1
	for row := t.walks[pl.read.walks:pl.read.walksEnd]; len(row) > 0; {
		u := row[0]
		w, n := walkFrom(row[1:])
		row = row[1+n:]
		if &p.bases[pl.inst.base+uint32(u)] != b {
			continue
		}
		from := b.off + w.dst
		to := from + t.fromTo[u][1].Size()
		for d := range w.n {
			to += (w.size[d] - 1) * w.dstStride[d]
		}
		if lo < 0 || from < lo {
			lo = from
		}
		hi = max(hi, to)
	}
	return lo, hi
}

// explainRead compares what was chosen with what exact runs would have cost.
func (p *Plan) explainRead(batch int, pl *place) ExplainedRead {
	r := pl.read
	e := ExplainedRead{
		Rank: p.batches[batch].Rank, Region: pl.region, Offset: pl.offset, Batch: batch, Shape: r.shape.String(),
		Segments: int(r.segsEnd - r.segs), Runs: r.runs, Wire: r.wire, Needed: r.needed, Staging: r.staging,
	}
	if r.segsEnd > r.segs {
		e.Offset += pl.tmpl.segs[r.segs].src
	}
	for _, h := range pl.tmpl.holders[r.slot] {
		if rank := p.t.ranks[h.rank].rank; rank != e.Rank {
			e.Replicas = append(e.Replicas, rank)
		}
	}
	c := &p.prices[p.batches[batch].rank]
	e.Cost = (c.PerSegment*float64(e.Segments) + c.PerRun*float64(r.runs) + c.PerByte*float64(r.wire)) / 1000
	exact := (c.PerSegment + c.PerRun*float64(r.exactRuns) + c.PerByte*float64(r.needed)) / 1000
	parts := (r.walksEnd-r.walks) > 0 && r.shape != exactDirect
	switch {
	case p.o.Classic:
		e.Why = "the classic rule"
	case r.shape == exactDirect:
		e.Why = fmt.Sprintf("%d runs straight into the arena cost %.0f µs", r.runs, e.Cost)
	case r.shape == exactStaged && parts:
		e.Why = "exact runs through staging: the bytes are cast, needed more than once, or reordered more cheaply here"
	default:
		e.Why = fmt.Sprintf("%d exact runs would cost %.0f µs; reading %.2f× the bytes in %d runs costs %.0f µs",
			r.exactRuns, exact, float64(r.wire)/float64(max(r.needed, 1)), r.runs, e.Cost)
	}
	return e
}

// opsString writes an op-chain as one would in Python.
func opsString(ops []Op) string {
	var b strings.Builder
	b.WriteString("source")
	for i := range ops {
		if ops[i].Name == "__getitem__" {
			b.WriteString("[" + argsString(ops[i].Args) + "]")
			continue
		}
		fmt.Fprintf(&b, ".%s(%s)", ops[i].Name, argsString(ops[i].Args))
	}
	return b.String()
}

// argsString writes arguments as Python would.
func argsString(args []Arg) string {
	parts := make([]string, len(args))
	for i := range args {
		parts[i] = argString(&args[i])
	}
	return strings.Join(parts, ", ")
}

// argString writes one argument; a slice as start:stop:step with what is absent left out.
func argString(a *Arg) string {
	switch a.Kind {
	case ArgInt:
		return fmt.Sprint(a.Int)
	case ArgInts, ArgIndex:
		return strings.ReplaceAll(fmt.Sprint(a.Ints), " ", ", ")
	case ArgEllipsis:
		return "..."
	case ArgNewAxis:
		return "None"
	case ArgText:
		return a.Text
	}
	bound := func(has uint8, n int64) string {
		if a.Has&has == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	s := bound(HasStart, a.Start) + ":" + bound(HasStop, a.Stop)
	if a.Has&HasStep != 0 {
		s += ":" + bound(HasStep, a.Step)
	}
	return s
}

// String draws the explanation for people.
func (e *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%v of destination rank %d: %s at %d of the arena\n", e.Param, e.DType, e.Shape, e.Dest, nbytesString(e.Nbytes), e.Offset)
	if len(e.Aliases) > 0 {
		fmt.Fprintf(&b, "  also known as %s\n", strings.Join(e.Aliases, ", "))
	}
	for i := range e.Copies {
		c := &e.Copies[i]
		fmt.Fprintf(&b, "  copy %d: %s %s, %s, to %d\n", c.Copy, c.From, c.Source, c.View, c.Dst)
		for k := range c.Reads {
			r := &c.Reads[k]
			fmt.Fprintf(&b, "    %s: rank %d region %d @%d: %s, %d segments, %d runs, %s for %s needed (batch %d", boxString(r.Box), r.Rank, r.Region, r.Offset,
				r.Shape, r.Segments, r.Runs, nbytesString(r.Wire), nbytesString(r.Needed), r.Batch)
			if len(r.Replicas) > 0 {
				fmt.Fprintf(&b, "; also on ranks %v", r.Replicas)
			}
			fmt.Fprintf(&b, "): %s\n", r.Why)
		}
	}
	for _, f := range e.Fills {
		fmt.Fprintf(&b, "  fill %s\n", f)
	}
	return b.String()
}
