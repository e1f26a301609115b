package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

// Each test and benchmark is named after a cost that users of such systems reported. Those of registration and of many
// short runs are in package rdmabench, that of leaks over many refits in package refit.

// opened is a whole system in this process.
func opened(tb testing.TB, b *refitBench) *refitBench {
	tb.Helper()
	if err := b.open(tb.Context(), tb.TempDir()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// TestStorageIsNotReboundByRefits: arenas are made once. However many versions come, the engine sees the same two files,
// and so the same pages.
func TestStorageIsNotReboundByRefits(t *testing.T) {
	t.Parallel()
	b := opened(t, &refitBench{transport: local.Name, nbytes: 1 << 20})
	seen := map[uint64]bool{}
	for v := range uint64(10) {
		if _, err := b.refit(t.Context(), v+1); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(b.receiver.ArenaRoot(), "current", "rank-0.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatalf("%T", st.Sys())
		}
		seen[sys.Ino] = true
	}
	if len(seen) != 2 {
		t.Errorf("ten versions were served from %d files, want 2", len(seen))
	}
}

// TestNoRankCarriesEverything: where ranks hold replicas, reads are spread over all of them, by bytes.
func TestNoRankCarriesEverything(t *testing.T) {
	t.Parallel()
	const ranks, rows, cols, matrices = 4, 512, 256, 64
	var sources []shardlayout.Source
	dest := plan.Dest{}
	for i := range matrices {
		name := fmt.Sprintf("w%d", i)
		sources = append(sources, shardlayout.Source{Name: name, Shape: []int64{rows, cols}, Size: 2})
		dest.Params = append(dest.Params, plan.Param{Name: name, DType: plan.BF16, Shape: []int64{rows, cols}, Offset: int64(i) * rows * cols * 2})
		dest.Copies = append(dest.Copies, plan.Copy{Source: name, Param: i, Shape: []int64{rows, cols}, Stride: []int64{cols, 1}})
	}
	held, err := shardlayout.Cut(sources, shardlayout.HSDP, ranks)
	if err != nil {
		t.Fatal(err)
	}
	var layouts []*plan.Layout
	for rank := range held {
		layouts = append(layouts, planLayout(rank, sources, &held[rank]))
	}
	table, err := plan.Merge(layouts)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(table, []plan.Dest{dest}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wire := make([]int64, ranks)
	for i := range p.Batches() {
		wire[p.Batch(i).Rank] += p.Batch(i).Wire
	}
	const fair = matrices * rows * cols * 2 / ranks
	for rank, n := range wire {
		if n < fair*8/10 || n > fair*12/10 {
			t.Errorf("rank %d serves %d bytes, a fair share is %d; all: %v", rank, n, fair, wire)
		}
	}
}

func planLayout(rank int, sources []shardlayout.Source, held *shardlayout.Rank) *plan.Layout {
	l := &plan.Layout{Rank: rank, Regions: []int64{held.Nbytes}}
	for _, s := range sources {
		l.Names, l.DTypes, l.Shapes = append(l.Names, s.Name), append(l.DTypes, plan.BF16), append(l.Shapes, s.Shape...)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
	}
	for _, s := range held.Shards {
		l.Source, l.Region, l.Offset = append(l.Source, uint32(s.Source)), append(l.Region, 0), append(l.Offset, s.Offset)
		for d := range s.Lo {
			l.Box = append(l.Box, s.Lo[d], s.Hi[d])
		}
	}
	return l
}

// BenchmarkVerificationInProduction gives the time of a stage with digests as a share of one without, by turns.
func BenchmarkVerificationInProduction(b *testing.B) {
	const nbytes = 64 << 20
	for _, name := range []string{local.Name, tcp.Name} {
		b.Run(name, func(b *testing.B) {
			with := opened(b, &refitBench{transport: name, nbytes: nbytes / stageRanks})
			without := opened(b, &refitBench{transport: name, nbytes: nbytes / stageRanks, unverified: true})
			version, took := uint64(0), [2]time.Duration{}
			for b.Loop() {
				version++
				for i, r := range []*refitBench{with, without} {
					rec, err := r.refit(b.Context(), version)
					if err != nil {
						b.Fatal(err)
					}
					if d := time.Duration(float64(rec.E2EMs) * 1e6); took[i] == 0 || d < took[i] {
						took[i] = d
					}
				}
			}
			b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "of-unverified")
		})
	}
}
