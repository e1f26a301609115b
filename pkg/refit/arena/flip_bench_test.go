package arena

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// BenchmarkFlip is the pause of engines that read by name: two sealed slots take turns. It must not grow with their size;
// 1 GiB takes 2 GiB of shared memory while it runs.
func BenchmarkFlip(b *testing.B) {
	for _, nbytes := range []int64{1 << 20, 64 << 20, 1 << 30} {
		b.Run(fmt.Sprintf("%dMiB", nbytes>>20), func(b *testing.B) {
			root, err := os.MkdirTemp("/dev/shm", "flip-") //nolint:usetesting // what is measured is shared memory
			if err != nil {
				b.Skip(err)
			}
			b.Cleanup(func() { _ = os.RemoveAll(root) })
			s, err := Open(Config{Root: root, Ranks: []Rank{{Tensors: []safetensors.Spec{{Name: "w", DType: "U8", Shape: []int64{nbytes}}}}}})
			if err != nil {
				b.Skip(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			var slots [2]*Slot
			for i := range slots {
				slot, _, err := s.Resume(Version{Model: "m", Run: 1, Version: uint64(i + 1)}, Content{}, 1)
				if err = errors.Join(err, s.Seal(slot, Version{Model: "m", Run: 1, Version: uint64(i + 1)})); err != nil {
					b.Fatal(err)
				}
				slots[i] = slot
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := s.Flip(slots[i%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
