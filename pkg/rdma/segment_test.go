package rdma

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// dumbEnd computes one past the last byte in big numbers.
func dumbEnd(start, run int64, n, stride [3]int64) *big.Int {
	end := new(big.Int).Add(big.NewInt(start), big.NewInt(run))
	for d := range n {
		end.Add(end, new(big.Int).Mul(big.NewInt(n[d]-1), big.NewInt(stride[d])))
	}
	return end
}

func valid(s *Segment, srcLen, dstLen int64) bool {
	if s.Run < 1 || s.Src < 0 || s.Dst < 0 {
		return false
	}
	total := big.NewInt(s.Run)
	for d := range s.N {
		if s.N[d] < 1 || s.SrcStride[d] < 0 || s.DstStride[d] < 0 {
			return false
		}
		total.Mul(total, big.NewInt(s.N[d]))
	}
	return total.Cmp(big.NewInt(maxExtent)) <= 0 &&
		dumbEnd(s.Src, s.Run, s.N, s.SrcStride).Cmp(big.NewInt(srcLen)) <= 0 &&
		dumbEnd(s.Dst, s.Run, s.N, s.DstStride).Cmp(big.NewInt(dstLen)) <= 0
}

func FuzzCheckAgainstBigNumbers(f *testing.F) {
	f.Add(int64(0), int64(0), int64(1), int64(1), int64(1), int64(1), int64(0), int64(0), int64(0), int64(0), int64(10))
	f.Add(int64(math.MaxInt64), int64(0), int64(1), int64(2), int64(2), int64(2), int64(1), int64(1), int64(1), int64(0), int64(10))
	f.Add(int64(1), int64(1), int64(1)<<40, int64(1)<<40, int64(1)<<40, int64(1), int64(1)<<40, int64(0), int64(0), int64(0), int64(1)<<50)
	f.Fuzz(func(t *testing.T, src, dst, run, n0, n1, n2, s0, s1, s2, d2, length int64) {
		length = min(max(length, 0), maxExtent/2)
		s := Segment{Src: src, Dst: dst, Run: run, N: [3]int64{n0, n1, n2}, SrcStride: [3]int64{s0, s1, s2}, DstStride: [3]int64{s1, s0, d2}}
		if got, want := s.Check(length, length) == nil, valid(&s, length, length); got != want {
			t.Fatalf("%+v in %d bytes: accepted %v, want %v", s, length, got, want)
		}
	})
}

func TestCheckAllSums(t *testing.T) {
	t.Parallel()
	regions := []RemoteRegion{{Nbytes: 100}, {Nbytes: 50}}
	segs := []Segment{Contiguous(0, 0, 0, 100), Contiguous(1, 10, 100, 40)}
	if n, err := CheckAll(segs, regions, 140); n != 140 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		bad := append([]Segment(nil), segs...)
		bad[r.IntN(2)].Region = 2 + r.Uint32N(math.MaxUint32-2)
		if _, err := CheckAll(bad, regions, 140); err == nil {
			t.Fatalf("accepted %+v", bad)
		}
	}
}
