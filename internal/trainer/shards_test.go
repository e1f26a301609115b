package trainer

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/internal/tiles"
)

// tiny generates and opens a small checkpoint.
func tiny(t *testing.T) *checkpoint.Checkpoint {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := checkpoint.Generate(t.Context(), dir, checkpoint.GenerateOptions{Seed: 1, Tiny: true}); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestFillIsTheVersionCut compares what a rank holds, element by element, with whole tensors that were changed as a
// whole: how a tensor is cut must not show in its values.
func TestFillIsTheVersionCut(t *testing.T) {
	t.Parallel()
	c := tiny(t)
	for _, kind := range []shardlayout.Kind{shardlayout.FSDP, shardlayout.TP, shardlayout.HSDP} {
		const world, seed, version = 4, 3, 2
		covered := map[string]int64{}
		for rank := range world {
			s, err := Cut(c, kind, rank, world, tiles.Options{})
			if err != nil {
				t.Fatal(err)
			}
			mem := make([]byte, s.Nbytes())
			if err := s.Fill(mem, seed, version); err != nil {
				t.Fatal(err)
			}
			for i := range s.held.Shards {
				covered[checkShard(t, s, i, mem, seed, version)] += s.held.Shards[i].Nbytes
			}
		}
		for _, tensor := range c.Tensors() {
			if n := covered[tensor.Name]; n < int64(len(tensor.Bytes)) {
				t.Errorf("%v: the ranks hold %d of the %d bytes of %s", kind, n, len(tensor.Bytes), tensor.Name)
			}
		}
	}
}

// checkShard picks every element of a shard out of the whole tensor, and returns the tensor's name.
func checkShard(t *testing.T, s *Shards, i int, mem []byte, seed, version uint64) string {
	t.Helper()
	sh := s.held.Shards[i]
	tensor := s.tensors[sh.Source]
	if sh.Nbytes == 0 {
		return tensor.Name
	}
	whole := bytes.Clone(tensor.Bytes)
	checkpoint.Mutate(whole, tensor.DType, tensor.Name, 0, seed, version)
	size := int64(len(whole))
	for _, n := range tensor.Shape {
		size /= n
	}
	at := append([]int64(nil), sh.Lo...)
	for off := sh.Offset; off < sh.Offset+sh.Nbytes; off += size {
		flat := int64(0)
		for d, x := range at {
			flat = flat*tensor.Shape[d] + x
		}
		if !bytes.Equal(mem[off:off+size], whole[flat*size:(flat+1)*size]) {
			t.Fatalf("rank %d, tensor %s, element %v differs", s.layout.Rank, tensor.Name, at)
		}
		for d := len(at) - 1; d >= 0; d-- {
			if at[d]++; at[d] < sh.Hi[d] {
				break
			}
			at[d] = sh.Lo[d]
		}
	}
	return tensor.Name
}

func TestCutRefuses(t *testing.T) {
	t.Parallel()
	if _, err := Cut(tiny(t), shardlayout.HSDP, 0, 3, tiles.Options{}); err == nil {
		t.Error("three ranks were cut in two replicas")
	}
}

// TestLayoutHasOneRowForEachShard checks the columns that are published against what is held.
func TestLayoutHasOneRowForEachShard(t *testing.T) {
	t.Parallel()
	s, err := Cut(tiny(t), shardlayout.FSDP, 1, 3, tiles.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := s.Layout()
	if l.Rank != 1 || len(l.Source) != len(s.held.Shards) || len(l.Offset) != len(l.Source) || len(l.Grid) != len(l.Shapes) || l.Regions[0] != s.Nbytes() {
		t.Errorf("rank %d, %d rows and %d offsets for %d shards, %d grid values for %d dimensions, region of %d bytes for %d",
			l.Rank, len(l.Source), len(l.Offset), len(s.held.Shards), len(l.Grid), len(l.Shapes), l.Regions[0], s.Nbytes())
	}
}
