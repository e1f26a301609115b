package rdmatest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// partsLand reads random batches in parts: each is told of once, when its bytes are there and not before; an error of who is
// told is the transfer's, as it is; and a batch that fails tells nothing wrong. Peers that don't tell of parts pass.
func partsLand(t *testing.T, f Factory) {
	g := newRig(t, f)
	reader, ok := g.peer.(rdma.PartReader)
	if !ok {
		t.Skip("this transport doesn't tell of parts")
	}
	r := rand.New(rand.NewPCG(21, 22))
	regions := [][]byte{g.src[0].Bytes(), g.src[1].Bytes()}
	for range 20 {
		var parts [][]rdma.Segment
		segs := RandomSegments(r, 1+r.IntN(12), []int64{rigRegion, rigRegion / 3}, rigDst)
		for rest := segs; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		want := bytes.Clone(g.dst.Bytes())
		Apply(want, regions, segs)
		told := make([]atomic.Int32, len(parts))
		tr, err := reader.ReadParts(g.dst, parts, func(i int) error {
			told[i].Add(1)
			return sameParts(g.dst.Bytes(), want, parts[i])
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := Wait(tr); err != nil {
			t.Fatal(err)
		}
		for i := range told {
			if n := told[i].Load(); n != 1 {
				t.Fatalf("part %d of %d was told of %d times", i, len(parts), n)
			}
		}
		if !bytes.Equal(g.dst.Bytes(), want) {
			t.Fatal("the batch brought other bytes")
		}
	}
	partsRefused(t, g, reader)
}

// sameParts compares what segments brought.
func sameParts(got, want []byte, segs []rdma.Segment) error {
	for _, s := range segs {
		for i := range s.N[0] {
			for j := range s.N[1] {
				for k := range s.N[2] {
					at := s.Dst + i*s.DstStride[0] + j*s.DstStride[1] + k*s.DstStride[2]
					if !bytes.Equal(got[at:at+s.Run], want[at:at+s.Run]) {
						return errors.New("a part was told of before its bytes had come")
					}
				}
			}
		}
	}
	return nil
}

// partsRefused: who looks at a part may say no, and the peer goes on.
func partsRefused(t *testing.T, g *rig, reader rdma.PartReader) {
	t.Helper()
	no := errors.New("these bytes are wrong")
	parts := [][]rdma.Segment{{rdma.Contiguous(0, 0, 0, 4096)}, {rdma.Contiguous(0, 4096, 4096, 4096)}}
	tr, err := reader.ReadParts(g.dst, parts, func(i int) error {
		if i == 1 {
			return no
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Wait(tr); !errors.Is(err, no) {
		t.Errorf("a part was refused, and the transfer ended with %v", err)
	}
	parts[1][0].Src = rigRegion
	if _, err := reader.ReadParts(g.dst, parts, func(int) error { return no }); rdma.KindOf(err) != rdma.ErrRefused {
		t.Errorf("a part outside of its region: %v", err)
	}
	if err := Read(g.peer, g.dst, parts[0]); err != nil {
		t.Errorf("the peer is of no more use: %v", err)
	}
}
