package capturegen

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/safetensors"
)

// src is a BF16 source.
func src(name string, shape ...int64) Source {
	return Source{Name: name, DType: safetensors.BF16, Shape: shape}
}

var heads = map[string]any{"hidden_size": 8.0, "num_attention_heads": 4.0, "num_key_value_heads": 2.0, "head_dim": 2.0}

// attention of one layer: 4 query heads, 2 key/value heads of 2.
func attention() []Source {
	return []Source{src("l.k_proj.weight", 4, 8), src("l.o_proj.weight", 8, 8), src("l.q_proj.weight", 8, 8), src("l.v_proj.weight", 4, 8)}
}

func generated(t *testing.T, sources []Source, config map[string]any, tp int) *Capture {
	t.Helper()
	c, err := FromSources(sources, checkpoint.ParseConfig(config), tp)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		sources []Source
		config  map[string]any
		tp      int
		rank    int
		want    []string // lines that must be there
		notes   string   // a part of the one note
	}{
		{name: "unknown names are replicated", sources: []Source{src("a.b", 3, 5), src("scalar"), src("zero", 0, 4)}, tp: 2, rank: 1, want: []string{
			"copy a.b [] to a.b {0 [3 5] [5 1]}", "copy scalar [] to scalar {0 [] []}", "param zero BF16 [0 4]", "copy zero [] to zero {0 [0 4] [4 1]}",
		}},
		{name: "key heads fewer than ranks", sources: attention(), config: heads, tp: 4, rank: 3, want: []string{
			`copy l.k_proj.weight [["narrow",[0,2,2]]] to l.qkv_proj.weight {16 [2 8] [8 1]}`, "param l.qkv_proj.weight BF16 [6 8]",
			`copy l.o_proj.weight [["narrow",[1,6,2]]] to l.o_proj.weight {0 [8 2] [2 1]}`,
		}},
		{
			name: "heads that can't be split", sources: attention(), config: heads, tp: 3, rank: 1, notes: "4 query heads and 2 key/value heads can't be split between 3 ranks",
			want: []string{"param l.qkv_proj.weight BF16 [16 8]", "param l.o_proj.weight BF16 [8 8]"},
		},
		{
			name: "no config", sources: attention(), tp: 2, notes: "don't match config.json's heads",
			want: []string{"param l.q_proj.weight BF16 [8 8]", "param l.o_proj.weight BF16 [8 8]"},
		},
		{name: "no value projection", sources: attention()[:3], config: heads, tp: 2, want: []string{"param l.q_proj.weight BF16 [8 8]", "param l.o_proj.weight BF16 [8 8]"}},
		{
			name: "projections of other columns", config: heads, tp: 2, notes: "don't match",
			sources: []Source{src("l.k_proj.weight", 4, 6), src("l.q_proj.weight", 8, 8), src("l.v_proj.weight", 4, 8)}, want: []string{"param l.k_proj.weight BF16 [4 6]"},
		},
		{
			name: "output of another width", config: heads, tp: 2, want: []string{"param l.o_proj.weight BF16 [8 10]", "param l.qkv_proj.weight BF16 [8 8]"},
			sources: []Source{src("l.k_proj.weight", 4, 8), src("l.o_proj.weight", 8, 10), src("l.q_proj.weight", 8, 8), src("l.v_proj.weight", 4, 8)},
		},
		{
			name: "mlp", sources: []Source{src("m.down_proj.bias", 8), src("m.down_proj.weight", 8, 6), src("m.gate_proj.weight", 6, 8), src("m.up_proj.weight", 6, 8)}, tp: 2, rank: 1,
			want: []string{
				`copy m.up_proj.weight [["narrow",[0,3,3]]] to m.gate_up_proj.weight {24 [3 8] [8 1]}`, `copy m.down_proj.weight [["narrow",[1,3,3]]] to m.down_proj.weight {0 [8 3] [3 1]}`,
				"param m.down_proj.bias BF16 [8]",
			},
		},
		{
			name: "mlp that can't be split", sources: []Source{src("m.down_proj.weight", 8, 5), src("m.gate_proj.weight", 5, 8), src("m.up_proj.weight", 5, 8)}, tp: 2,
			notes: "an mlp of width 5", want: []string{"param m.gate_up_proj.weight BF16 [10 8]", "param m.down_proj.weight BF16 [8 5]"},
		},
		{name: "mlp without gate", sources: []Source{src("m.down_proj.weight", 8, 6), src("m.up_proj.weight", 6, 8)}, tp: 2, want: []string{"param m.up_proj.weight BF16 [6 8]", "param m.down_proj.weight BF16 [8 6]"}},
		{name: "mlp of unequal rows", sources: []Source{src("m.gate_proj.weight", 4, 8), src("m.up_proj.weight", 6, 8)}, tp: 2, want: []string{"param m.up_proj.weight BF16 [6 8]"}},
		{name: "scales keep their names", sources: []Source{src("m.gate_proj.weight_scale", 4)}, tp: 2, want: []string{"param m.gate_proj.weight_scale BF16 [4]"}},
		{
			name: "vocabulary for three ranks", sources: []Source{src("lm_head.weight", 100, 2)}, tp: 3, rank: 1,
			want: []string{`copy lm_head.weight [["narrow",[0,64,36]]] to lm_head.weight {0 [36 2] [2 1]}`, "fill lm_head.weight {72 [28 2] [2 1]} with 0"},
		},
		{name: "rank beyond the vocabulary", sources: []Source{src("lm_head.weight", 100, 2)}, tp: 3, rank: 2, want: []string{"fill lm_head.weight {0 [64 2] [2 1]} with 0", "unread lm_head.weight"}},
		{name: "bias of a head", sources: []Source{src("lm_head.bias", 100)}, tp: 2, want: []string{"param lm_head.bias BF16 [100]"}},
		{
			name: "tied head in the file", sources: []Source{src("lm_head.weight", 64, 2), src("model.embed_tokens.weight", 64, 2)}, config: map[string]any{"tie_word_embeddings": true}, tp: 1,
			notes: "lm_head.weight is not read", want: []string{"unread lm_head.weight", "alias lm_head.weight of model.embed_tokens.weight"},
		},
		{
			name: "incomplete experts", tp: 2, notes: "incomplete",
			sources: []Source{src("m.experts.0.down_proj.weight", 4, 2), src("m.experts.0.gate_proj.weight", 2, 4), src("m.experts.0.up_proj.weight", 2, 4), src("m.experts.1.up_proj.weight", 2, 4)},
			want:    []string{"param m.experts.0.down_proj.weight BF16 [4 2]", "param m.experts.1.up_proj.weight BF16 [2 4]"},
		},
		{
			name: "experts that can't be split", tp: 2, notes: "an expert of width 3",
			sources: []Source{src("m.experts.0.down_proj.weight", 4, 3), src("m.experts.0.gate_proj.weight", 3, 4), src("m.experts.0.up_proj.weight", 3, 4)},
			want:    []string{"param m.experts.routed_experts.w13_weight BF16 [1 6 4]", "param m.experts.routed_experts.w2_weight BF16 [1 4 3]"},
		},
		{
			name: "expert bias", tp: 1, sources: []Source{src("m.experts.0.up_proj.bias", 2), src("m.experts.0.odd.weight", 2)},
			want: []string{"param m.experts.0.up_proj.bias BF16 [2]", "param m.experts.0.odd.weight BF16 [2]"},
		},
		{name: "gate of no experts", sources: []Source{src("m.gate.weight", 2, 4)}, config: map[string]any{"moe_router_dtype": "float32"}, tp: 1, want: []string{"param m.gate.weight BF16 [2 4]"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := generated(t, test.sources, test.config, test.tp)
			x, err := c.Case(test.tp, test.rank, false)
			if err != nil {
				t.Fatal(err)
			}
			have := x.lines(c.Sources)
			for _, line := range test.want {
				if !slices.Contains(have, line) {
					t.Errorf("missing: %s\nhave:\n%s", line, strings.Join(have, "\n"))
				}
			}
			if (test.notes == "") != (len(c.Notes) == 0) || len(c.Notes) > 1 || test.notes != "" && !strings.Contains(c.Notes[0], test.notes) {
				t.Errorf("notes %q, want one with %q", c.Notes, test.notes)
			}
		})
	}
}

func TestGenerateRefuses(t *testing.T) {
	t.Parallel()
	for _, tp := range []int{0, -1, maxTP + 1} {
		if _, err := FromSources(nil, checkpoint.Config{}, tp); err == nil || !strings.Contains(err.Error(), fmt.Sprint(tp)) {
			t.Errorf("tp %d: %v", tp, err)
		}
	}
	if _, err := FromSources([]Source{{"w", "F4", nil}}, checkpoint.Config{}, 1); err == nil || !strings.Contains(err.Error(), "F4") {
		t.Errorf("sub-byte source: %v", err)
	}
}

// The demo's checkpoint uses every rule, and its capture survives the file format.
func TestGenerateDemo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	if err := checkpoint.Generate(t.Context(), dir, checkpoint.GenerateOptions{Tiny: true}); err != nil {
		t.Fatal(err)
	}
	ckpt, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ckpt.Close() })
	for _, tp := range []int{1, 2, 4, 8} {
		c, err := Generate(ckpt, tp)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Notes) > 0 {
			t.Errorf("tp %d: notes %q", tp, c.Notes)
		}
		lines := strings.Join(c.Cases[tp-1].lines(c.Sources), "\n")
		for _, part := range []string{
			"mlp.gate.weight F32", "w13_weight", "w2_weight", "qkv_proj", "gate_up_proj", "fill model.embed_tokens.weight",
			"alias lm_head.weight of model.embed_tokens.weight", "rotary_emb.cache F32 [0 8]",
		} {
			if !strings.Contains(lines, part) {
				t.Errorf("tp %d: no %s", tp, part)
			}
		}
		again := roundTrip(t, c)
		if got := strings.Join(again.Cases[tp-1].lines(again.Sources), "\n"); got != lines {
			t.Errorf("tp %d: the file says something else", tp)
		}
	}
}

func roundTrip(t *testing.T, c *Capture) *Capture {
	t.Helper()
	var plain, packed bytes.Buffer
	if err := c.Encode(&plain); err != nil {
		t.Fatal(err)
	}
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(plain.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Decode(packed.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return again
}
