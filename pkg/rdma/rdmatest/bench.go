package rdmatest

import (
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Benchmark reads typical shapes over a pair, beside a plain copy of the same bytes.
func Benchmark(b *testing.B, f Factory) {
	const nbytes = 256 << 20
	p := f(b)
	src := AllocAs(b, nbytes, 1, rdma.AllocOptions{Backing: p.Backing})
	dst := Alloc(b, nbytes, 2)
	reg := Register(b, p.Source, src)
	b.Cleanup(func() { _ = p.Source.Close(); _ = p.Reader.Close() })
	peer := Connect(b, p.Reader, RemoteOf(b, p, reg))
	b.Run("memcpy", func(b *testing.B) {
		b.SetBytes(nbytes)
		for b.Loop() {
			copy(dst.Bytes(), src.Bytes())
		}
	})
	for _, c := range []struct {
		name string
		seg  rdma.Segment
	}{
		{"whole", rdma.Contiguous(0, 0, 0, nbytes)},
		{"64KiB", strided(nbytes, 64<<10)},
		{"4KiB", strided(nbytes, 4<<10)},
		{"384B", strided(nbytes, 384)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(c.seg.Nbytes())
			b.ReportAllocs()
			for b.Loop() {
				if err := Read(peer, dst, []rdma.Segment{c.seg}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// strided takes one run of four, so that source bytes and runs are as a column slice at tensor-parallel size 4 has.
func strided(nbytes, run int64) rdma.Segment {
	return rdma.Segment{Run: run, N: [3]int64{1, 1, nbytes / (4 * run)}, SrcStride: [3]int64{0, 0, 4 * run}, DstStride: [3]int64{0, 0, run}}
}
