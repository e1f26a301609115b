package refit

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// slice is a destination that takes one box of up, wherever it begins and ends, transposed or not.
func slice(r *rand.Rand) (d plan.Dest, lo, n [2]int64, transposed bool) {
	var ops []plan.Op
	for dim, extent := range model[0].shape {
		lo[dim] = r.Int64N(extent)
		n[dim] = 1 + r.Int64N(extent-lo[dim])
		ops = append(ops, plan.Op{Name: "narrow", Args: []plan.Arg{{Int: int64(dim)}, {Int: lo[dim]}, {Int: n[dim]}}})
	}
	shape := []int64{n[0], n[1]}
	if transposed = r.IntN(2) == 1; transposed {
		ops = append(ops, plan.Op{Name: "t"})
		shape = []int64{n[1], n[0]}
	}
	return plan.Dest{
		Params: []plan.Param{{Name: "w", DType: plan.BF16, Shape: shape}},
		Copies: []plan.Copy{{Source: "up", Ops: ops, Shape: shape, Stride: []int64{shape[1], 1}}},
	}, lo, n, transposed
}

// sliced is the bytes that such a destination must hold.
func sliced(version uint64, lo, n [2]int64, transposed bool) []byte {
	up, width := content(model[0], version), model[0].shape[1]
	var want []byte
	at := func(i, j int64) { k := 2 * ((lo[0]+i)*width + lo[1] + j); want = append(want, up[k:k+2]...) }
	if transposed {
		for j := range n[1] {
			for i := range n[0] {
				at(i, j)
			}
		}
		return want
	}
	for i := range n[0] {
		for j := range n[1] {
			at(i, j)
		}
	}
	return want
}

// TestAFlippedBitIsFoundWhereverSlicesAreCut corrupts one bit of one read, each time of another slice, and wants it
// found, read again, and the right bytes served: no slice is so thin or so crooked that a byte of it goes unverified.
func TestAFlippedBitIsFoundWhereverSlicesAreCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 3})
	key := w.publish(1)
	r := rand.New(rand.NewPCG(7, 8))
	for i := range uint64(60) {
		dest, lo, n, transposed := slice(r)
		rc := w.receiver(func(c *ReceiverConfig) {
			c.Dests = []plan.Dest{dest}
			c.Transports[0] = rdmatest.Faulty(c.Transports[0], rdmatest.Fault{Kind: rdmatest.Corrupt, Rank: -1, Count: 1, Seed: i})
			c.VerifyFloor = 1
			c.Logger = nil
		})
		stats := w.refit(rc, key)
		if stats.Retries != 1 || stats.Verified != stats.Brought {
			t.Fatalf("slice %d: from %v, %v elements, transposed %t: %+v; want one retry, and every byte verified", i, lo, n, transposed, stats)
		}
		f, err := safetensors.Open(filepath.Join(rc.ArenaRoot(), "current", "rank-0.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Bytes(f.Tensors[0]); !bytes.Equal(got, sliced(1, lo, n, transposed)) {
			t.Fatalf("slice %d: from %v, %v elements, transposed %t: bytes differ", i, lo, n, transposed)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
