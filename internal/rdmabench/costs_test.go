package rdmabench

import (
	"fmt"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// Each benchmark is named after the cost that users of such systems reported.

func costRig(b *testing.B, name string, nbytes int64) (rdma.Peer, *rdma.Memory) {
	b.Helper()
	o := &Options{}
	if err := o.validate(); err != nil {
		b.Fatal(err)
	}
	bench := &bench{o: o}
	src, dst := rdmatest.Alloc(b, nbytes, 1), rdmatest.Alloc(b, nbytes, 2)
	var ts [2]rdma.Transport
	for i := range ts {
		var err error
		if ts[i], err = bench.open(name, i == 0); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = ts[i].Close() })
	}
	r, err := serve(ts[0], src)
	if err != nil {
		b.Fatal(err)
	}
	return rdmatest.Connect(b, ts[1], r), dst
}

// A batch of 15,000 short runs took 0.6 s to post elsewhere: as segments of a run each, and as one strided segment.
func BenchmarkFifteenThousandRuns(b *testing.B) {
	const n, run = 15_000, 384
	column := rdma.Segment{Run: run, N: [3]int64{1, 1, n}, SrcStride: [3]int64{0, 0, 4 * run}, DstStride: [3]int64{0, 0, run}}
	flat := make([]rdma.Segment, n)
	for i := range int64(n) {
		flat[i] = rdma.Contiguous(0, 4*run*i, run*i, run)
	}
	for _, name := range []string{"local", "tcp"} {
		for what, segs := range map[string][]rdma.Segment{"segments": flat, "strided": {column}} {
			b.Run(fmt.Sprintf("%s/%s", name, what), func(b *testing.B) {
				p, dst := costRig(b, name, 4*n*run)
				b.SetBytes(n * run)
				b.ReportAllocs()
				for b.Loop() {
					if err := rdmatest.Read(p, dst, segs); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Registering each tensor was prohibitively slow elsewhere: one region for all, and one each.
func BenchmarkRegistrationOfThousandTensors(b *testing.B) {
	const tensors, nbytes = 1000, 64 << 10
	whole := rdmatest.Alloc(b, tensors*nbytes, 1)
	each := make([]*rdma.Memory, tensors)
	for i := range each {
		each[i] = rdmatest.Alloc(b, nbytes, 1)
	}
	for _, name := range []string{"local", "tcp"} {
		for what, mems := range map[string][]*rdma.Memory{"one region": {whole}, "a region each": each} {
			b.Run(fmt.Sprintf("%s/%s", name, what), func(b *testing.B) {
				o := &Options{}
				if err := o.validate(); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					t, err := (&bench{o: o}).open(name, true)
					if err != nil {
						b.Fatal(err)
					}
					for _, m := range mems {
						rdmatest.Register(b, t, m)
					}
					if a, err := t.Access(); err != nil || len(a.Metadata) == 0 {
						b.Fatal(err)
					}
					if err := t.Close(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
