package arena

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// BenchmarkFlip is the pause of engines that read by name: two sealed slots take turns. It must not grow with their size,
// and 99 of 100 must stay below a millisecond: the slowest ones are those in which the scheduler gave the core away. Up to 1 GiB the arenas lie in shared memory, which takes 2 GiB while it runs; those of
// 8 GiB lie on the disk, and nobody touches their pages.
func BenchmarkFlip(b *testing.B) {
	for _, c := range []struct {
		nbytes int64
		dir    string
	}{{1 << 20, "/dev/shm"}, {64 << 20, "/dev/shm"}, {1 << 30, "/dev/shm"}, {1 << 30, ""}, {8 << 30, ""}} {
		where := map[bool]string{true: "shm", false: "disk"}[c.dir != ""]
		b.Run(fmt.Sprintf("%dMiB/%s", c.nbytes>>20, where), func(b *testing.B) {
			root, err := os.MkdirTemp(c.dir, "flip-") //nolint:usetesting // where it lies is what is measured
			if err != nil {
				b.Skip(err)
			}
			b.Cleanup(func() { _ = os.RemoveAll(root) })
			s, err := Open(Config{Root: root, Ranks: []Rank{{Tensors: []safetensors.Spec{{Name: "w", DType: "U8", Shape: []int64{c.nbytes}}}}}, lazy: c.dir == ""})
			if err != nil {
				b.Skip(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			slots := twoSealed(b, s)
			var took []time.Duration
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				if _, err := s.Flip(slots[i%2]); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}

// twoSealed hands out both slots, with a version each.
func twoSealed(tb testing.TB, s *Set) (slots [2]*Slot) {
	tb.Helper()
	for i := range slots {
		v := Version{Model: "m", Run: 1, Version: uint64(i + 1)}
		slot, _, err := s.Resume(v, Content{}, 1)
		if err == nil {
			err = s.Seal(slot, v)
		}
		if err != nil {
			tb.Fatal(err)
		}
		slots[i] = slot
	}
	return slots
}
