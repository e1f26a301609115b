package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// tiny is a generated checkpoint in a folder of its own.
func tiny(t *testing.T, seed uint64) *Checkpoint {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny")
	if err := Generate(t.Context(), dir, GenerateOptions{Seed: seed, Tiny: true}); err != nil {
		t.Fatal(err)
	}
	return mustOpen(t, dir)
}

func mustOpen(t *testing.T, dir string) *Checkpoint {
	t.Helper()
	c, err := Open(dir)
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

func TestGenerateForm(t *testing.T) {
	t.Parallel()
	c := tiny(t, 1)
	config := c.Config()
	if config.ModelType != "qwen3_moe" || config.Arch != "Qwen3MoeForCausalLM" || config.Heads != 8 || config.KVHeads != 2 ||
		config.HeadDim != 8 || config.Hidden != 66 || !config.Tied || config.RouterDType != "float32" {
		t.Errorf("config %+v", config)
	}
	if _, ok := c.Find("lm_head.weight"); ok {
		t.Error("tied checkpoint has lm_head")
	}
	embed, ok := c.Find("model.embed_tokens.weight")
	if !ok || embed.Shape[0]%64 == 0 || embed.Shape[0]%4 == 0 {
		t.Errorf("embedding %v %v", ok, embed.Shape)
	}
	if empty, ok := c.Find("model.rotary_emb.cache"); !ok || len(empty.Bytes) != 0 {
		t.Errorf("zero-byte tensor: %v, %d bytes", ok, len(empty.Bytes))
	}
	files := map[string]bool{}
	for _, tensor := range c.Tensors() {
		files[tensor.File] = true
	}
	if len(files) < 2 {
		t.Errorf("%d files, want a sharded checkpoint", len(files))
	}
}

func TestGenerateDeterministic(t *testing.T) {
	t.Parallel()
	a, b, other := tiny(t, 7), tiny(t, 7), tiny(t, 8)
	differ := 0
	for i, x := range a.Tensors() {
		if y := b.Tensors()[i]; x.Name != y.Name || !bytes.Equal(x.Bytes, y.Bytes) {
			t.Errorf("%s differs between equal seeds", x.Name)
		}
		if !bytes.Equal(x.Bytes, other.Tensors()[i].Bytes) {
			differ++
		}
	}
	if differ < len(a.Tensors())-1 {
		t.Errorf("only %d of %d tensors depend on the seed", differ, len(a.Tensors()))
	}
}

func TestGenerateFinite(t *testing.T) {
	t.Parallel()
	for _, tensor := range tiny(t, 3).Tensors() {
		for i, v := range floats(tensor.DType, tensor.Bytes) {
			if math.IsNaN(v) || math.Abs(v) > 2 {
				t.Fatalf("%s[%d] = %g", tensor.Name, i, v)
			}
		}
	}
}

// floats decodes the dtypes that the generator writes; none for integers.
func floats(dtype safetensors.DType, b []byte) []float64 {
	var out []float64
	switch dtype {
	case safetensors.BF16:
		for ; len(b) >= 2; b = b[2:] {
			out = append(out, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b))<<16)))
		}
	case safetensors.F32:
		for ; len(b) >= 4; b = b[4:] {
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
		}
	}
	return out
}

func TestGenerateRefusesUsedFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Generate(t.Context(), dir, GenerateOptions{Tiny: true})
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "absent or empty") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Dir(dir) + "/.*partial*"); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestGenerateCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	parent := t.TempDir()
	if err := Generate(ctx, filepath.Join(parent, "c"), GenerateOptions{Tiny: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(parent); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// The demo's checkpoint is what the documentation says: its size, and unique names.
func TestDemoModel(t *testing.T) {
	t.Parallel()
	total, names := int64(0), []string{}
	for _, g := range demoModel.tensors() {
		total += g.nbytes()
		names = append(names, g.Name)
	}
	slices.Sort(names)
	if total < 190e6 || total > 220e6 || len(slices.Compact(names)) != len(demoModel.tensors()) {
		t.Errorf("%d bytes in %d tensors", total, len(names))
	}
}

func BenchmarkGenerate(b *testing.B) {
	start := time.Now()
	for b.Loop() {
		if err := Generate(b.Context(), filepath.Join(b.TempDir(), "demo"), GenerateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(time.Since(start).Seconds()/float64(b.N), "s/checkpoint")
}
