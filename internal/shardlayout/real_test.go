package shardlayout

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// trainerJob is the part of schema refit.layouts.v1 that says which boxes a real trainer's ranks hold.
type trainerJob struct {
	Ranks []struct {
		Rank    int
		Entries []struct {
			Name        string
			GlobalShape []int64 `json:"global_shape"`
			Box         [][2]int64
		}
	}
}

// Boxes are those of torch's fully_shard on models with uneven and empty shards.
func TestCutEqualsRealTrainers(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]Kind{
		"fsdp2_qwen3_w2": FSDP, "fsdp2_qwen3_w4": FSDP, "fsdp2_qwen3_w4_tied": FSDP, "fsdp2_qwen3moe_w2": FSDP, "fsdp2_qwen3moe_w4": FSDP, "hsdp_qwen3_w4": HSDP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := readJob(t, name)
			var sources []Source
			for _, e := range job.Ranks[0].Entries {
				sources = append(sources, Source{Name: e.Name, Shape: e.GlobalShape, Size: 2})
			}
			ranks, err := Cut(sources, kind, len(job.Ranks))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range job.Ranks {
				for i, e := range r.Entries {
					shard := ranks[r.Rank].Shards[i]
					var box [][2]int64
					for d := range shard.Lo {
						box = append(box, [2]int64{shard.Lo[d], shard.Hi[d]})
					}
					if e.Name != sources[i].Name || fmt.Sprint(box) != fmt.Sprint(e.Box) {
						t.Errorf("rank %d: %s %v: box %v, torch has %s %v", r.Rank, sources[i].Name, e.GlobalShape, box, e.Name, e.Box)
					}
				}
			}
		})
	}
}

func readJob(t *testing.T, name string) trainerJob {
	t.Helper()
	f, err := os.Open("../../../shared/layouts/" + name + ".json.gz")
	if err != nil {
		t.Skipf("needs the shared layouts: %v", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var job trainerJob
	if err := json.NewDecoder(r).Decode(&job); err != nil {
		t.Fatal(err)
	}
	return job
}
