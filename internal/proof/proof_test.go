package proof

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/safetensors"
)

// generated is the tiny demo checkpoint with its capture for two ranks.
func generated(t testing.TB, o checkpoint.GenerateOptions) Input {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "c")
	if err := checkpoint.Generate(t.Context(), dir, o); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	capture, err := capturegen.Generate(c, 2)
	if err != nil {
		t.Fatal(err)
	}
	return Input{Checkpoint: c, Capture: capture, Case: &capture.Cases[1], Seed: 5, Version: 2}
}

// writeArena makes the arena of in as it must be, after change had a go at its bytes by parameter name.
func writeArena(t testing.TB, in *Input, change func(map[string][]byte)) {
	t.Helper()
	copies, fills := byParam(in.Case)
	content, specs := map[string][]byte{}, []safetensors.Spec{}
	for i := range in.Case.Params {
		p := &in.Case.Params[i]
		if p.Excluded != "" {
			continue
		}
		want, err := rebuild(p, copies[i], fills[i], in.source)
		if err != nil {
			t.Fatal(err)
		}
		content[p.Name] = want.bytes
		specs = append(specs, safetensors.Spec{Name: p.Name, DType: p.DType, Shape: p.Shape})
	}
	if change != nil {
		change(content)
	}
	in.Arena = filepath.Join(t.TempDir(), "arena.safetensors")
	writeSpecs(t, in.Arena, specs, content)
}

func writeSpecs(t testing.TB, path string, specs []safetensors.Spec, content map[string][]byte) {
	t.Helper()
	layout, err := safetensors.NewLayout(specs, nil, safetensors.PageAlign)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, layout.Nbytes)
	copy(b, layout.Header)
	for _, placed := range layout.Tensors {
		copy(b[placed.Offset:], content[placed.Name])
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	in := generated(t, checkpoint.GenerateOptions{Tiny: true})
	writeArena(t, &in, nil)
	report, err := Verify(t.Context(), in)
	if err != nil || report.Params != len(in.Case.Params) || report.Nbytes < in.Checkpoint.Nbytes()/3 {
		t.Fatalf("%+v %v", report, err)
	}
}

// Any single changed byte, a stale version, another seed, the other rank: all are found.
func TestVerifyFindsDifferences(t *testing.T) {
	t.Parallel()
	in := generated(t, checkpoint.GenerateOptions{Tiny: true})
	for i, name := range []string{"model.layers.1.mlp.gate.weight", "model.layers.0.self_attn.qkv_proj.weight", "model.embed_tokens.weight", "model.logit_scale", "model.position_ids"} {
		var at int
		writeArena(t, &in, func(content map[string][]byte) {
			at = (len(content[name]) - 1) * (i + 1) / 5
			content[name][at] ^= 1
		})
		_, err := Verify(t.Context(), in)
		var found *Difference
		if !errors.As(err, &found) || found.Param != name || found.Element != int64(at/len(found.Expected)) || found.Others != 0 {
			t.Errorf("%s byte %d: %v", name, at, err)
		}
	}
	writeArena(t, &in, nil)
	for name, change := range map[string]func(*Input){
		"older version": func(in *Input) { in.Version = 1 }, "checkpoint's own": func(in *Input) { in.Version = 0 },
		"other seed": func(in *Input) { in.Seed = 6 }, "other rank": func(in *Input) { in.Case = &in.Capture.Cases[0] },
	} {
		other := in
		change(&other)
		var found *Difference
		if _, err := Verify(t.Context(), other); !errors.As(err, &found) || found.Others == 0 || !strings.Contains(err.Error(), found.Param) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	base := generated(t, checkpoint.GenerateOptions{Tiny: true})
	writeArena(t, &base, nil)
	tests := []struct {
		name, says string
		change     func(t *testing.T, in *Input)
	}{
		{"no arena", "no such file", func(_ *testing.T, in *Input) { in.Arena += ".gone" }},
		{"parameter missing", "parameter more is missing", func(_ *testing.T, in *Input) {
			in.Case.Params = append(in.Case.Params, capturegen.Param{Name: "more", DType: "U8"})
		}},
		{"tensor too many", "is no parameter", func(_ *testing.T, in *Input) { in.Case.Params = in.Case.Params[1:] }},
		{"dtype", "expected F64", func(_ *testing.T, in *Input) { in.Case.Params[0].DType = safetensors.F64 }},
		{"shape", "expected BF16 [7]", func(_ *testing.T, in *Input) { in.Case.Params[0].Shape = []int64{7} }},
		{"hole", "written by no copy", func(_ *testing.T, in *Input) { in.Case.Fills = nil }},
		{"overlap", "written twice", func(_ *testing.T, in *Input) { in.Case.Copies = append(in.Case.Copies, in.Case.Copies[0]) }},
		{"unknown source", "not in the checkpoint", func(_ *testing.T, in *Input) { in.Capture.Sources[0].Name = "gone" }},
		{"source of another shape", "the capture says", func(_ *testing.T, in *Input) { in.Capture.Sources[0].Shape = []int64{1} }},
		{"view of another shape", "can't fill", func(_ *testing.T, in *Input) { in.Case.Copies[0].Ops = nil }},
		{"unknown op", "op 0, frobnicate", func(_ *testing.T, in *Input) { in.Case.Copies[0].Ops = []capturegen.Op{{Name: "frobnicate"}} }},
		{"fill outside", "lies outside", func(_ *testing.T, in *Input) { in.Case.Fills[0].Offset += 1 << 20 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			in := base
			in.Capture = &capturegen.Capture{Sources: slices.Clone(base.Capture.Sources)}
			in.Case = &capturegen.Case{
				TP: 2, Rank: 1, Params: slices.Clone(base.Case.Params), Copies: slices.Clone(base.Case.Copies),
				Fills: slices.Clone(base.Case.Fills), Alias: maps.Clone(base.Case.Alias),
			}
			test.change(t, &in)
			if _, err := Verify(t.Context(), in); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want a message with %q", err, test.says)
			}
		})
	}
}

func TestVerifyCancelled(t *testing.T) {
	t.Parallel()
	in := generated(t, checkpoint.GenerateOptions{Tiny: true})
	writeArena(t, &in, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, in); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Parameters that the capture excludes are neither expected nor compared.
func TestVerifyExcluded(t *testing.T) {
	t.Parallel()
	in := generated(t, checkpoint.GenerateOptions{Tiny: true})
	in.Case.Params = append(in.Case.Params, capturegen.Param{Name: "A", DType: "F32", Shape: []int64{3}, Excluded: "exp"})
	writeArena(t, &in, nil)
	if report, err := Verify(t.Context(), in); err != nil || report.Excluded != 1 {
		t.Errorf("%+v %v", report, err)
	}
}

// One parameter made of conversions: a NaN may come out as any NaN, a number only as itself.
func TestCastsAndFills(t *testing.T) {
	t.Parallel()
	source := func(int) (tensor, error) {
		return tensor{safetensors.F32, []int64{2}, []byte{0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x3f}}, nil // NaN, 1
	}
	p := capturegen.Param{Name: "p", DType: safetensors.BF16, Shape: []int64{3}}
	copies := []capturegen.Copy{{Place: capturegen.Place{Shape: []int64{2}, Stride: []int64{1}}}}
	fills := []capturegen.Fill{{Place: capturegen.Place{Offset: 2}, Value: -2}}
	want, err := rebuild(&p, copies, fills, source)
	if err != nil {
		t.Fatal(err)
	}
	for found, same := range map[string]bool{
		"\xc0\x7f\x80\x3f\x00\xc0": true, "\xff\xff\x80\x3f\x00\xc0": true,
		"\x80\x7f\x80\x3f\x00\xc0": false, "\xc0\x7f\x81\x3f\x00\xc0": false, "\xc0\x7f\x80\x3f\x00\x40": false,
	} {
		if d := want.compare([]byte(found), "a", "p"); (d == nil) != same {
			t.Errorf("% x: %v", found, d)
		}
	}
	for _, dtype := range []safetensors.DType{safetensors.I32, safetensors.F8E4M3} {
		p.DType = dtype
		if _, err := rebuild(&p, copies, nil, source); err == nil || !strings.Contains(err.Error(), string(dtype)) {
			t.Errorf("F32 to %s: %v", dtype, err)
		}
		if _, err := rebuild(&p, nil, fills, source); err == nil || !strings.Contains(err.Error(), "constant") {
			t.Errorf("fill of %s: %v", dtype, err)
		}
	}
}

func BenchmarkVerifyDemo(b *testing.B) {
	in := generated(b, checkpoint.GenerateOptions{})
	writeArena(b, &in, nil)
	for b.Loop() {
		report, err := Verify(b.Context(), in)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(report.Nbytes)
	}
}
