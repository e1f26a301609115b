package shardlayout

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// draw shows the boxes of one source, rank by rank: "[0,25)x[0,8) | …".
func draw(ranks []Rank, source int) string {
	var parts []string
	for _, r := range ranks {
		s := r.Shards[source]
		box := []string{}
		for d := range s.Lo {
			box = append(box, fmt.Sprintf("%d:%d", s.Lo[d], s.Hi[d]))
		}
		parts = append(parts, strings.Join(box, "x"))
	}
	return strings.Join(parts, " | ")
}

func TestCut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, source string
		shape        []int64
		kind         Kind
		ranks        int
		want         string
	}{
		// torch's own numbers for 97 rows, 6 rows and 3 experts on 4 ranks.
		{"uneven", "w", []int64{97, 2}, FSDP, 4, "0:25x0:2 | 25:50x0:2 | 50:75x0:2 | 75:97x0:2"},
		{"last empty", "w", []int64{6}, FSDP, 4, "0:2 | 2:4 | 4:6 | 6:6"},
		{"fewer rows than ranks", "w", []int64{3, 5}, FSDP, 4, "0:1x0:5 | 1:2x0:5 | 2:3x0:5 | 3:3x0:5"},
		{"five on four", "w", []int64{5}, FSDP, 4, "0:2 | 2:4 | 4:5 | 5:5"},
		{"one row", "w", []int64{1}, FSDP, 3, "0:1 | 1:1 | 1:1"},
		{"scalar", "w", nil, FSDP, 2, " | "},
		{"zero bytes", "w", []int64{0, 4}, FSDP, 2, "0:0x0:4 | 0:0x0:4"},
		{"one rank", "w", []int64{7}, FSDP, 1, "0:7"},
		{"replicas", "w", []int64{5}, HSDP, 4, "0:3 | 3:5 | 0:3 | 3:5"},
		{"two replicas of one", "w", []int64{5}, HSDP, 2, "0:5 | 0:5"},

		{"q", "model.layers.0.self_attn.q_proj.weight", []int64{8, 4}, TP, 2, "0:4x0:4 | 4:8x0:4"},
		{"q bias", "model.layers.0.self_attn.q_proj.bias", []int64{8}, TP, 2, "0:4 | 4:8"},
		{"o", "model.layers.0.self_attn.o_proj.weight", []int64{4, 8}, TP, 2, "0:4x0:4 | 0:4x4:8"},
		{"o bias", "model.layers.0.self_attn.o_proj.bias", []int64{4}, TP, 2, "0:4 | 0:4"},
		{"expert down", "model.layers.0.mlp.experts.3.down_proj.weight", []int64{4, 8}, TP, 2, "0:4x0:4 | 0:4x4:8"},
		{"mixtral", "model.layers.0.block_sparse_moe.experts.3.w1.weight", []int64{8, 4}, TP, 2, "0:4x0:4 | 4:8x0:4"},
		{"uneven vocabulary", "model.embed_tokens.weight", []int64{1003, 2}, TP, 4, "0:251x0:2 | 251:502x0:2 | 502:753x0:2 | 753:1003x0:2"},
		{"head", "lm_head.weight", []int64{4, 2}, TP, 2, "0:2x0:2 | 2:4x0:2"},
		{"norm", "model.norm.weight", []int64{4}, TP, 2, "0:4 | 0:4"},
		{"router", "model.layers.1.mlp.gate.weight", []int64{4, 4}, TP, 2, "0:4x0:4 | 0:4x0:4"},
		{"scale", "model.layers.1.q_proj.weight_scale", []int64{4}, TP, 2, "0:4 | 0:4"},
		{"bare", "weight", []int64{4}, TP, 2, "0:4 | 0:4"},
		{"scalar by name", "q_proj.weight", nil, TP, 2, " | "},
		{"vector by name", "o_proj.weight", []int64{4}, TP, 2, "0:4 | 0:4"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ranks, err := Cut([]Source{{test.source, test.shape, 2}}, test.kind, test.ranks)
			if err != nil {
				t.Fatal(err)
			}
			if got := draw(ranks, 0); got != test.want {
				t.Errorf("%s %v on %d ranks\ngot  %s\nwant %s", test.source, test.shape, test.ranks, got, test.want)
			}
		})
	}
}

func TestCutRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		source Source
		kind   Kind
		ranks  int
		says   string
	}{
		{"kind", Source{}, "pp", 2, `"pp"`},
		{"no rank", Source{}, FSDP, 0, "0 trainer ranks"},
		{"too many ranks", Source{}, FSDP, MaxRanks + 1, "1 to 4096"},
		{"odd hsdp", Source{}, HSDP, 3, "3 trainer ranks, expected an even number"},
		{"negative", Source{"w", []int64{4, -1}, 2}, FSDP, 2, "source w"},
		{"overflow", Source{"w", []int64{4, math.MaxInt64 / 2}, 2}, FSDP, 2, "source w"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, err := Cut([]Source{test.source}, test.kind, test.ranks); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want a message with %q", err, test.says)
			}
		})
	}
	full := []Source{{"a", []int64{math.MaxInt64 - 10}, 1}, {"b", []int64{100}, 1}}
	if _, err := Cut(full, FSDP, 1); err == nil || !strings.Contains(err.Error(), "source b") {
		t.Errorf("full region: %v", err)
	}
}

// Every element is held, boxes of one source are equal or disjoint, and shards neither overlap in memory nor leave their region.
func TestCutCovers(t *testing.T) {
	t.Parallel()
	sources := []Source{
		{"model.embed_tokens.weight", []int64{13, 3}, 2},
		{"a.o_proj.weight", []int64{3, 10}, 4},
		{"s", nil, 8},
		{"z", []int64{0}, 2},
		{"norm.weight", []int64{7}, 2},
	}
	for _, kind := range []Kind{FSDP, TP, HSDP} {
		for _, n := range []int{1, 2, 3, 4, 6, 16} {
			ranks, err := Cut(sources, kind, n)
			if kind == HSDP && n%2 == 1 {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, source := range sources {
				checkCover(t, source, ranks, i)
			}
			for _, r := range ranks {
				checkPlaces(t, r)
			}
		}
	}
}

func checkCover(t *testing.T, source Source, ranks []Rank, i int) {
	t.Helper()
	owner := map[string]string{} // element: the box that holds it
	for _, r := range ranks {
		s := r.Shards[i]
		for _, element := range elements(s.Lo, s.Hi) {
			box := fmt.Sprint(s.Lo, s.Hi)
			if other := owner[element]; other != "" && other != box {
				t.Fatalf("%s: %s is in %s and %s", source.Name, element, other, box)
			}
			owner[element] = box
		}
	}
	if want := len(elements(make([]int64, len(source.Shape)), source.Shape)); len(owner) != want {
		t.Errorf("%s: %d of %d elements held", source.Name, len(owner), want)
	}
}

// elements lists the coordinates of a box.
func elements(lo, hi []int64) []string {
	all := []string{""}
	for d := range lo {
		var next []string
		for _, prefix := range all {
			for x := lo[d]; x < hi[d]; x++ {
				next = append(next, fmt.Sprint(prefix, ",", x))
			}
		}
		all = next
	}
	return all
}

func checkPlaces(t *testing.T, r Rank) {
	t.Helper()
	end := int64(0)
	for _, s := range r.Shards {
		if s.Nbytes == 0 {
			if s.Offset != 0 {
				t.Errorf("zero-byte shard placed at %d", s.Offset)
			}
			continue
		}
		if s.Offset < end || s.Offset%Align != 0 {
			t.Errorf("shard at %d after one that ends at %d", s.Offset, end)
		}
		end = s.Offset + s.Nbytes
	}
	if r.Nbytes != end {
		t.Errorf("region of %d bytes, shards end at %d", r.Nbytes, end)
	}
}
