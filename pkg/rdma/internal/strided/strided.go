// Package strided is the arithmetic of segments: normal form, cutting to bounded pieces, and the copies themselves.
//
// The bytes of a segment have one order, row-major over its outer dimensions and then along the run. Cutting keeps
// it, so two sides that cut differently still agree on the stream of packed bytes.
package strided

import (
	"iter"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Compact gives the same bytes in the same order with the longest run and the fewest outer dimensions, innermost last.
func Compact(s rdma.Segment) rdma.Segment {
	out := rdma.Segment{Region: s.Region, Src: s.Src, Dst: s.Dst, Run: s.Run, N: [3]int64{1, 1, 1}}
	at := rdma.MaxRank // dimensions out.N[at:] are in use
	for d := rdma.MaxRank - 1; d >= 0; d-- {
		n, ss, ds := s.N[d], s.SrcStride[d], s.DstStride[d]
		switch {
		case n == 1:
		case at == rdma.MaxRank && ss == out.Run && ds == out.Run:
			out.Run *= n
		case at < rdma.MaxRank && ss == out.N[at]*out.SrcStride[at] && ds == out.N[at]*out.DstStride[at]:
			out.N[at] *= n
		default:
			at--
			out.N[at], out.SrcStride[at], out.DstStride[at] = n, ss, ds
		}
	}
	return out
}

// Pieces cuts a segment into pieces of at most limit bytes, in order.
func Pieces(s rdma.Segment, limit int64) iter.Seq[rdma.Segment] {
	return func(yield func(rdma.Segment) bool) { cut(s, 0, limit, yield) }
}

// cut splits along dimension d, and below it where one step of d is too large already.
func cut(s rdma.Segment, d int, limit int64, yield func(rdma.Segment) bool) bool {
	if s.Nbytes() <= limit {
		return yield(s)
	}
	if d == rdma.MaxRank {
		return cutRun(s, limit, yield)
	}
	n := s.N[d]
	step := max(1, limit/(s.Nbytes()/n))
	for i := int64(0); i < n; i += step {
		p := s
		p.N[d] = min(step, n-i)
		p.Src += i * s.SrcStride[d]
		p.Dst += i * s.DstStride[d]
		if !cut(p, d+1, limit, yield) {
			return false
		}
	}
	return true
}

func cutRun(s rdma.Segment, limit int64, yield func(rdma.Segment) bool) bool {
	for off := int64(0); off < s.Run; off += limit {
		p := s
		p.Src, p.Dst, p.Run = s.Src+off, s.Dst+off, min(limit, s.Run-off)
		if !yield(p) {
			return false
		}
	}
	return true
}

// Chunk is a group of pieces that are asked for together.
type Chunk struct {
	Segs   []rdma.Segment
	Nbytes int64
}

// Chunks joins, compacts, cuts and groups segments into chunks of at most maxBytes and maxSegs.
func Chunks(segs []rdma.Segment, maxBytes int64, maxSegs int) []Chunk {
	g := grouper{maxBytes: maxBytes, maxSegs: maxSegs}
	for i := 0; i < len(segs); {
		s, n := join(segs[i:])
		i += n
		if s = Compact(s); s.Nbytes() <= maxBytes {
			g.add(s)
			continue
		}
		for p := range Pieces(s, maxBytes) {
			g.add(p)
		}
	}
	g.flush()
	return g.out
}

// grouper fills chunks.
type grouper struct {
	maxBytes int64
	maxSegs  int
	cur      Chunk
	out      []Chunk
}

func (g *grouper) add(s rdma.Segment) {
	n := s.Nbytes()
	if g.cur.Nbytes+n > g.maxBytes || len(g.cur.Segs) == g.maxSegs {
		g.flush()
	}
	g.cur.Segs = append(g.cur.Segs, s)
	g.cur.Nbytes += n
}

func (g *grouper) flush() {
	if len(g.cur.Segs) > 0 {
		g.out = append(g.out, g.cur)
	}
	g.cur = Chunk{}
}

// join takes segments of one run each as long as they continue each other, or follow at a constant step, and gives them
// as one segment with their number. Callers that list every run pay for each; here and on the wire it is one again.
func join(segs []rdma.Segment) (rdma.Segment, int) {
	s, n := segs[0], 1
	if !Contiguous(&s) {
		return s, n
	}
	for n < len(segs) && continues(&s, &segs[n]) {
		s.Run += segs[n].Run
		n++
	}
	if n > 1 || len(segs) < 3 || !follows(&s, &segs[1]) {
		return s, n
	}
	s.SrcStride[2], s.DstStride[2] = segs[1].Src-s.Src, segs[1].Dst-s.Dst
	for n < len(segs) && follows(&s, &segs[n]) &&
		segs[n].Src == s.Src+s.N[2]*s.SrcStride[2] && segs[n].Dst == s.Dst+s.N[2]*s.DstStride[2] {
		s.N[2]++
		n++
	}
	return s, n
}

// continues says whether b is the next bytes of the run of a, on both sides.
func continues(a, b *rdma.Segment) bool {
	return b.Region == a.Region && Contiguous(b) && b.Src == a.Src+a.Run && b.Dst == a.Dst+a.Run
}

// follows says whether b may be another step of a.
func follows(a, b *rdma.Segment) bool {
	return b.Region == a.Region && b.Run == a.Run && Contiguous(b) && b.Src >= a.Src && b.Dst >= a.Dst
}

// Contiguous says whether a compacted segment is one run.
func Contiguous(s *rdma.Segment) bool { return s.N == [3]int64{1, 1, 1} }

// Copy moves a segment's bytes from a region to the destination.
func Copy(dst, src []byte, s *rdma.Segment) {
	for i := range s.N[0] {
		for j := range s.N[1] {
			so := s.Src + i*s.SrcStride[0] + j*s.SrcStride[1]
			do := s.Dst + i*s.DstStride[0] + j*s.DstStride[1]
			copyRow(dst[do:], src[so:], s)
		}
	}
}

// copyRow is the innermost dimension. Slices are re-cut instead of indexed, which leaves one bounds check a run.
func copyRow(dst, src []byte, s *rdma.Segment) {
	run, ss, ds := s.Run, s.SrcStride[2], s.DstStride[2]
	for k := s.N[2]; ; k-- {
		copy(dst[:run], src[:run])
		if k == 1 {
			return
		}
		dst, src = dst[ds:], src[ss:]
	}
}

// Pack writes a segment's source bytes in order to the front of out, and gives their number.
func Pack(out, src []byte, s *rdma.Segment) int64 {
	p := SourceSide(*s)
	Copy(out, src, &p)
	return s.Nbytes()
}

// Unpack scatters the front of in over the destination, and gives the number of bytes used.
func Unpack(dst, in []byte, s *rdma.Segment) int64 {
	p := DestSide(*s)
	Copy(dst, in, &p)
	return s.Nbytes()
}

// SourceSide is the segment with a dense destination that begins at zero: what the end sees that only reads.
func SourceSide(s rdma.Segment) rdma.Segment {
	s.Dst, s.DstStride = 0, dense(&s)
	return s
}

// DestSide is the segment with a dense source that begins at zero: what the end sees that only writes.
func DestSide(s rdma.Segment) rdma.Segment {
	s.Src, s.SrcStride = 0, dense(&s)
	return s
}

// dense is the strides of a side without gaps.
func dense(s *rdma.Segment) (stride [3]int64) {
	step := s.Run
	for d := rdma.MaxRank - 1; d >= 0; d-- {
		stride[d] = step
		step *= s.N[d]
	}
	return stride
}
