package plan

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Describe prints the plan canonically, every batch, segment, scatter and fill: equal inputs give equal
// bytes. It is meant for goldens and for reading small plans; Summary is for people.
func (p *Plan) Describe() string {
	var b strings.Builder
	p.WriteDescription(&b) //nolint:errcheck // a strings.Builder takes everything
	return b.String()
}

// WriteDescription writes what Describe returns.
func (p *Plan) WriteDescription(w io.Writer) error {
	s := &p.stats
	e := errWriter{w: w}
	e.printf("plan: %d batches from %d ranks, %d bytes for %d needed, %d segments, %d runs, staging %d\n",
		s.Batches, s.Ranks, s.Wire, s.Needed, s.Segments, s.Runs, s.StagingPeak)
	for i := range p.batches {
		b := p.Batch(i)
		e.printf("batch %d: rank %d, %d bytes, %d segments, staging %d\n", i, b.Rank, b.Wire, b.Segments, b.Staging)
		for g := range p.Segments(i) {
			e.printf("  read %s\n", g.String())
		}
		for g := range p.Scatters(i) {
			e.printf("  scatter %s\n", g.String())
		}
	}
	for i := range p.fills {
		e.printf("fill %s\n", p.fills[i].String())
	}
	return e.err
}

// errWriter keeps the first error of many writes.
type errWriter struct {
	w   io.Writer
	err error
}

// printf writes, unless a write before failed.
func (e *errWriter) printf(format string, args ...any) {
	if e.err == nil {
		_, e.err = fmt.Fprintf(e.w, format, args...)
	}
}

// String draws the segment: where from, where to, how many times.
func (s Segment) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "region %d @%d", s.Region, s.Src)
	if s.Dest == Staging {
		fmt.Fprintf(&b, " -> staging @%d", s.Dst)
	} else {
		fmt.Fprintf(&b, " -> %d @%d", s.Dest, s.Dst)
	}
	fmt.Fprintf(&b, " run %d", s.Run)
	for d, n := range s.N {
		if n != 1 {
			fmt.Fprintf(&b, " x%d(%d,%d)", n, s.SrcStride[d], s.DstStride[d])
		}
	}
	return b.String()
}

// String draws the scatter.
func (s Scatter) String() string {
	types := s.From.String()
	if s.From != s.To {
		types += ">" + s.To.String()
	}
	return fmt.Sprintf("staging @%d -> %d @%d %s %v (%v,%v)", s.Src, s.Dest, s.Dst, types, s.Shape, s.SrcStride, s.DstStride)
}

// String draws the fill.
func (f FillOp) String() string {
	return fmt.Sprintf("%x -> %d @%d %v (%v)", f.Pattern, f.Dest, f.Off, f.Shape, f.Stride)
}

// Summary prints the plan for people: the sums, and a line for each parameter.
func (p *Plan) Summary() string {
	var b strings.Builder
	s := &p.stats
	fmt.Fprintf(&b, "%s needed, %s on the wire (%.3f×), %d segments of %d runs (%d if exact) from %d ranks in %d batches; %s through staging, at most %s at once\n",
		nbytesString(s.Needed), nbytesString(s.Wire), s.Amplification(), s.Segments, s.Runs, s.ExactRuns, s.Ranks, s.Batches,
		nbytesString(s.Staged), nbytesString(s.StagingPeak))
	tw := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "dest\tparameter\ttype\tshape\tbytes\tcopies\tranks\treads\twire\thow")
	for i := range p.dests {
		sums := p.paramSums(i)
		for k := range p.dests[i].Params {
			q := &p.dests[i].Params[k]
			if q.Excluded != "" {
				fmt.Fprintf(tw, "%d\t%s\t%s\t%v\t\t\t\t\t\texcluded: %s\n", p.dests[i].Rank, q.Name, q.DType, q.Shape, q.Excluded)
				continue
			}
			u := &sums[k]
			fmt.Fprintf(tw, "%d\t%s\t%s\t%v\t%s\t%d\t%d\t%d\t%s\t%s\n", p.dests[i].Rank, q.Name, q.DType, q.Shape, nbytesString(q.nbytes()),
				len(u.copies), len(u.ranks), u.reads, nbytesString(u.wire), u.how())
		}
	}
	tw.Flush() //nolint:errcheck // a strings.Builder takes everything
	return b.String()
}

// Amplification is bytes that cross for each byte needed.
func (s *Stats) Amplification() float64 {
	if s.Needed == 0 {
		return 1
	}
	return float64(s.Wire) / float64(s.Needed)
}

// paramSum sums the reads up that bring a parameter's bytes. A read that serves several parameters
// counts for each.
type paramSum struct {
	copies map[int32]bool
	ranks  map[int]bool
	shapes [spanning + 1]int
	reads  int
	wire   int64
}

// how lists the read shapes that occur.
func (u *paramSum) how() string {
	var parts []string
	for s, n := range u.shapes {
		if n > 0 {
			parts = append(parts, readShape(s).String())
		}
	}
	return strings.Join(parts, "; ")
}

// paramSums goes through all reads once and adds each to the parameters that it serves.
func (p *Plan) paramSums(dest int) []paramSum {
	sums := make([]paramSum, len(p.dests[dest].Params))
	for i := range sums {
		sums[i] = paramSum{copies: map[int32]bool{}, ranks: map[int]bool{}}
	}
	for i := range p.batches {
		p.reads(i, func(pl *place) bool {
			for k := range p.usesOf(pl) {
				if int(k.dest) != dest {
					continue
				}
				u := &sums[p.dests[dest].Copies[k.copy].Param]
				u.copies[k.copy] = true
				u.ranks[p.batches[i].Rank] = true
				u.shapes[pl.read.shape]++
				u.reads++
				u.wire += pl.read.wire
			}
			return true
		})
	}
	return sums
}

// usesOf yields the copies that a read serves, each once for every part of it.
func (p *Plan) usesOf(pl *place) func(yield func(b *base) bool) {
	return func(yield func(b *base) bool) {
		t := pl.tmpl
		for row := t.walks[pl.read.walks:pl.read.walksEnd]; len(row) > 0; {
			u := row[0]
			row = row[1+3+3*row[1]:]
			if !yield(&p.bases[pl.inst.base+uint32(u)]) {
				return
			}
		}
	}
}

// nbytesString writes bytes for people, in powers of a thousand.
func nbytesString(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n), -1
	for f >= unit && i < 4 {
		f /= unit
		i++
	}
	return fmt.Sprintf("%.2f %cB", f, "kMGTP"[i])
}
