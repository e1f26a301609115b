package strided

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// bytesOf lists source and destination offset of each byte, by the definition of a segment.
func bytesOf(s rdma.Segment) (src, dst []int64) {
	for i := range s.N[0] {
		for j := range s.N[1] {
			for k := range s.N[2] {
				for b := range s.Run {
					src = append(src, s.Src+i*s.SrcStride[0]+j*s.SrcStride[1]+k*s.SrcStride[2]+b)
					dst = append(dst, s.Dst+i*s.DstStride[0]+j*s.DstStride[1]+k*s.DstStride[2]+b)
				}
			}
		}
	}
	return src, dst
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// random makes a segment whose dimensions are dense often enough for Compact to have work.
func random(r *rand.Rand) rdma.Segment {
	s := rdma.Segment{Src: r.Int64N(20), Dst: r.Int64N(20), Run: 1 + r.Int64N(9)}
	ss, ds := s.Run, s.Run
	for d := 2; d >= 0; d-- {
		s.N[d] = 1 + r.Int64N(4)
		if r.IntN(2) == 0 {
			ss += r.Int64N(5)
		}
		if r.IntN(2) == 0 {
			ds += r.Int64N(5)
		}
		s.SrcStride[d], s.DstStride[d] = ss, ds
		ss, ds = ss*s.N[d], ds*s.N[d]
	}
	return s
}

func TestCompactAndCutKeepBytesAndOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		s := random(r)
		wantSrc, wantDst := bytesOf(s)
		if gs, gd := bytesOf(Compact(s)); !equal(gs, wantSrc) || !equal(gd, wantDst) {
			t.Fatalf("Compact(%+v) = %+v names other bytes", s, Compact(s))
		}
		limit := 1 + r.Int64N(40)
		var gs, gd []int64
		for p := range Pieces(s, limit) {
			if p.Nbytes() > limit {
				t.Fatalf("piece %+v of %+v is over %d bytes", p, s, limit)
			}
			a, b := bytesOf(p)
			gs, gd = append(gs, a...), append(gd, b...)
		}
		if !equal(gs, wantSrc) || !equal(gd, wantDst) {
			t.Fatalf("Pieces(%+v, %d) name other bytes", s, limit)
		}
	}
}

func TestCopiesAgainstTheDefinition(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		s := random(r)
		src := make([]byte, s.SrcEnd())
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		so, do := bytesOf(s)
		want := make([]byte, s.DstEnd())
		stream := make([]byte, len(so))
		for i := range so {
			want[do[i]], stream[i] = src[so[i]], src[so[i]]
		}
		got := make([]byte, s.DstEnd())
		Copy(got, src, &s)
		if !bytes.Equal(got, want) {
			t.Fatalf("Copy(%+v)", s)
		}
		packed := make([]byte, len(so))
		if n := Pack(packed, src, &s); n != int64(len(so)) || !bytes.Equal(packed, stream) {
			t.Fatalf("Pack(%+v) = %d", s, n)
		}
		clear(got)
		if n := Unpack(got, packed, &s); n != int64(len(so)) || !bytes.Equal(got, want) {
			t.Fatalf("Unpack(%+v) = %d", s, n)
		}
	}
}

// flat lists a segment's runs, each as a segment.
func flat(s rdma.Segment) (out []rdma.Segment) {
	for i := range s.N[0] {
		for j := range s.N[1] {
			for k := range s.N[2] {
				out = append(out, rdma.Contiguous(s.Region, s.Src+i*s.SrcStride[0]+j*s.SrcStride[1]+k*s.SrcStride[2],
					s.Dst+i*s.DstStride[0]+j*s.DstStride[1]+k*s.DstStride[2], s.Run))
			}
		}
	}
	return out
}

func TestChunksJoinRunsAndKeepBytesAndOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		var segs []rdma.Segment
		for range 1 + r.IntN(4) {
			s := random(r)
			s.Region = r.Uint32N(2)
			if segs = append(segs, flat(s)...); r.IntN(2) == 0 {
				segs = append(segs, random(r))
			}
		}
		var wantSrc, wantDst, gotSrc, gotDst []int64
		for _, s := range segs {
			a, b := bytesOf(s)
			wantSrc, wantDst = append(wantSrc, a...), append(wantDst, b...)
		}
		for _, c := range Chunks(segs, 1+r.Int64N(500), 1+r.IntN(9)) {
			for _, s := range c.Segs {
				a, b := bytesOf(s)
				gotSrc, gotDst = append(gotSrc, a...), append(gotDst, b...)
			}
		}
		if !equal(gotSrc, wantSrc) || !equal(gotDst, wantDst) {
			t.Fatalf("chunks of %+v name other bytes", segs)
		}
	}
	column := rdma.Segment{Run: 3, N: [3]int64{1, 1, 5000}, SrcStride: [3]int64{0, 0, 12}, DstStride: [3]int64{0, 0, 4}}
	if c := Chunks(flat(column), 1<<20, 10); len(c) != 1 || len(c[0].Segs) != 1 || c[0].Segs[0] != column {
		t.Errorf("5,000 runs of a column are %d chunks, the first %+v", len(c), c[0].Segs)
	}
}

func TestChunksHoldTheirLimits(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	segs := make([]rdma.Segment, 200)
	var want int64
	for i := range segs {
		segs[i] = random(r)
		want += segs[i].Nbytes()
	}
	var got int64
	for _, c := range Chunks(segs, 256, 5) {
		var sum int64
		for i := range c.Segs {
			sum += c.Segs[i].Nbytes()
		}
		if sum != c.Nbytes || sum > 256 || len(c.Segs) > 5 {
			t.Fatalf("chunk of %d bytes (says %d), %d segments", sum, c.Nbytes, len(c.Segs))
		}
		got += sum
	}
	if got != want {
		t.Fatalf("chunks carry %d of %d bytes", got, want)
	}
}
