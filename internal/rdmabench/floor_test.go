package rdmabench

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// BenchmarkFloorOfVerification is the arithmetic of what digests must cost: memory is moved on one core, in parts, by a copy
// and by the kernel, and each part is hashed right after it came, or is not. All are picoseconds of processor time a byte.
func BenchmarkFloorOfVerification(b *testing.B) {
	const nbytes = 128 << 20
	src, dst := rdmatest.Alloc(b, nbytes, 1), rdmatest.Alloc(b, nbytes, 2)
	ways := map[string]func(lo, hi int64) error{
		"copied": func(lo, hi int64) error { copy(dst.Bytes()[lo:hi], src.Bytes()[lo:hi]); return nil },
		"by the kernel": func(lo, hi int64) error {
			_, err := unix.Pread(src.FD(), dst.Bytes()[lo:hi], lo)
			return err
		},
		"not at all": func(_, _ int64) error { return nil },
	}
	for way, move := range ways {
		for _, part := range []int64{64 << 10, 256 << 10, 1 << 20} {
			for _, hashed := range []bool{false, true} {
				if way == "not at all" && !hashed {
					continue
				}
				b.Run(fmt.Sprintf("%s/%dKiB/hashed=%t", way, part>>10, hashed), func(b *testing.B) {
					used := processorTime()
					for b.Loop() {
						for at := int64(0); at < nbytes; at += part {
							if err := move(at, at+part); err != nil {
								b.Fatal(err)
							}
							if !hashed {
								continue
							}
							if _, err := tiles.Digest(dst.Bytes(), at, 1, []int64{part}, []int64{1}); err != nil {
								b.Fatal(err)
							}
						}
					}
					b.ReportMetric((processorTime()-used).Seconds()/float64(b.N)/nbytes*1e12, "ps/B")
				})
			}
		}
	}
}
