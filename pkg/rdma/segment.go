package rdma

import (
	"fmt"
	"math/bits"
)

// MaxRank is the number of outer dimensions of a segment.
const MaxRank = 3

// Segment is a strided piece of a remote region and where it goes in the destination. Element (i, j, k) of the outer
// dimensions is Run bytes at Src + i·SrcStride[0] + j·SrcStride[1] + k·SrcStride[2], and likewise on the destination.
type Segment struct {
	Region    uint32
	Src       int64    // bytes from the region's base
	Dst       int64    // bytes from the destination's base
	Run       int64    // contiguous bytes, ≥ 1
	N         [3]int64 // counts of the outer dimensions, outermost first; 1 where unused
	SrcStride [3]int64 // bytes, ≥ 0
	DstStride [3]int64 // bytes, ≥ 0
}

// Contiguous is the segment of nbytes without outer dimensions.
func Contiguous(region uint32, src, dst, nbytes int64) Segment {
	return Segment{Region: region, Src: src, Dst: dst, Run: nbytes, N: [3]int64{1, 1, 1}}
}

// Runs is the number of contiguous runs.
func (s *Segment) Runs() int64 { return s.N[0] * s.N[1] * s.N[2] }

// Nbytes is the number of bytes moved.
func (s *Segment) Nbytes() int64 { return s.Run * s.Runs() }

// maxExtent bounds every field, so that sums of a few of them don't overflow.
const maxExtent = 1 << 56

// Check refuses a segment that leaves [0, srcLen) or [0, dstLen), or whose arithmetic would overflow.
func (s *Segment) Check(srcLen, dstLen int64) error {
	if s.Run < 1 || s.Run > maxExtent {
		return fmt.Errorf("run of %d bytes", s.Run)
	}
	runs := uint64(1)
	for d, n := range s.N {
		if n < 1 || n > maxExtent || s.SrcStride[d] < 0 || s.DstStride[d] < 0 {
			return fmt.Errorf("dimension %d: count %d, strides %d and %d", d, n, s.SrcStride[d], s.DstStride[d])
		}
		hi, lo := bits.Mul64(runs, uint64(n))
		if hi != 0 || lo > maxExtent {
			return fmt.Errorf("counts %v overflow", s.N)
		}
		runs = lo
	}
	if hi, lo := bits.Mul64(runs, uint64(s.Run)); hi != 0 || lo > maxExtent {
		return fmt.Errorf("%d runs of %d bytes overflow", runs, s.Run)
	}
	if end, ok := s.end(s.Src, &s.SrcStride); !ok || end > srcLen {
		return fmt.Errorf("source [%d, %d) outside of the region's %d bytes", s.Src, end, srcLen)
	}
	if end, ok := s.end(s.Dst, &s.DstStride); !ok || end > dstLen {
		return fmt.Errorf("destination [%d, %d) outside of %d bytes", s.Dst, end, dstLen)
	}
	return nil
}

// end is one past the last byte touched; false where it overflows or begins below zero.
func (s *Segment) end(start int64, stride *[3]int64) (int64, bool) {
	if start < 0 || start > maxExtent {
		return start, false
	}
	end := start + s.Run
	for d, n := range s.N {
		hi, lo := bits.Mul64(uint64(n-1), uint64(stride[d]))
		if hi != 0 || lo > maxExtent {
			return maxExtent, false
		}
		end += int64(lo)
	}
	return end, true
}

// SrcEnd is one past the last source byte, for a segment that passed Check.
func (s *Segment) SrcEnd() int64 {
	end, _ := s.end(s.Src, &s.SrcStride)
	return end
}

// DstEnd is one past the last destination byte, for a segment that passed Check.
func (s *Segment) DstEnd() int64 {
	end, _ := s.end(s.Dst, &s.DstStride)
	return end
}

// CheckAll checks every segment against the regions and the destination, and gives the sum of bytes.
func CheckAll(segs []Segment, regions []RemoteRegion, dstLen int64) (int64, error) {
	var total int64
	for i := range segs {
		s := &segs[i]
		if int64(s.Region) >= int64(len(regions)) {
			return 0, fmt.Errorf("segment %d: region %d of %d", i, s.Region, len(regions))
		}
		if err := s.Check(regions[s.Region].Nbytes, dstLen); err != nil {
			return 0, fmt.Errorf("segment %d, region %d: %w", i, s.Region, err)
		}
		if total += s.Nbytes(); total > maxExtent {
			return 0, fmt.Errorf("segment %d: the batch's sum of bytes overflows", i)
		}
	}
	return total, nil
}
