package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// writeTensors makes a file of one-element U8 tensors with these names.
func writeTensors(t *testing.T, dir, file string, names ...string) {
	t.Helper()
	var specs []safetensors.Spec
	for _, name := range names {
		specs = append(specs, safetensors.Spec{Name: name, DType: safetensors.U8, Shape: []int64{1}})
	}
	writeSpecs(t, dir, file, specs)
}

func writeSpecs(t *testing.T, dir, file string, specs []safetensors.Spec) {
	t.Helper()
	l, err := safetensors.NewLayout(specs, nil, 8)
	if err != nil {
		t.Fatal(err)
	}
	b := append(l.Header, make([]byte, l.Nbytes-int64(len(l.Header)))...)
	writeFile(t, dir, file, b)
}

func writeFile(t *testing.T, dir, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeMap(t *testing.T, dir string, weights map[string]string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"weight_map": weights})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, indexName, b)
}

func names(c *Checkpoint) string {
	var all []string
	for _, tensor := range c.Tensors() {
		all = append(all, tensor.Name+"@"+tensor.File)
	}
	return strings.Join(all, " ")
}

func TestOpenForms(t *testing.T) {
	t.Parallel()
	t.Run("model.safetensors beside others", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		writeTensors(t, dir, "consolidated.safetensors", "x")
		writeTensors(t, dir, "model.safetensors", "b", "a")
		if got := names(mustOpen(t, dir)); got != "a@model.safetensors b@model.safetensors" {
			t.Error(got)
		}
	})
	t.Run("only file", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		writeTensors(t, dir, "silero.safetensors", "a")
		writeFile(t, dir, ".hidden.safetensors", nil)
		c := mustOpen(t, dir)
		if names(c) != "a@silero.safetensors" || c.Config().ModelType != "" || c.Nbytes() != 1 || c.Dir() != dir {
			t.Error(names(c), c.Config(), c.Nbytes(), c.Dir())
		}
	})
	t.Run("path of a file", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		writeTensors(t, dir, "one.safetensors", "a")
		writeTensors(t, dir, "two.safetensors", "b")
		if got := names(mustOpen(t, filepath.Join(dir, "two.safetensors"))); got != "b@two.safetensors" {
			t.Error(got)
		}
	})
	t.Run("sharded", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		writeTensors(t, dir, "m-1.safetensors", "c", "a")
		writeTensors(t, dir, "m-2.safetensors", "b")
		writeMap(t, dir, map[string]string{"a": "m-1.safetensors", "c": "m-1.safetensors", "b": "m-2.safetensors"})
		if got := names(mustOpen(t, dir)); got != "a@m-1.safetensors b@m-2.safetensors c@m-1.safetensors" {
			t.Error(got)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		make func(t *testing.T, dir string)
		says []string
	}{
		{"empty folder", func(*testing.T, string) {}, []string{"no safetensors file", "model.safetensors"}},
		{"several files", func(t *testing.T, dir string) {
			writeTensors(t, dir, "x.safetensors", "a")
			writeTensors(t, dir, "y.safetensors", "b")
		}, []string{"2 safetensors files", "x.safetensors", "index.json"}},
		{"missing shard", func(t *testing.T, dir string) {
			writeMap(t, dir, map[string]string{"a": "gone.safetensors"})
		}, []string{"gone.safetensors", "missing"}},
		{"tensor not in its file", func(t *testing.T, dir string) {
			writeTensors(t, dir, "m.safetensors", "a")
			writeMap(t, dir, map[string]string{"a": "m.safetensors", "b": "m.safetensors"})
		}, []string{"tensor b in m.safetensors", "doesn't hold it"}},
		{"tensor in another file", func(t *testing.T, dir string) {
			writeTensors(t, dir, "m.safetensors", "a", "b")
			writeTensors(t, dir, "n.safetensors", "c")
			writeMap(t, dir, map[string]string{"a": "m.safetensors", "b": "n.safetensors", "c": "n.safetensors"})
		}, []string{"tensor b in n.safetensors"}},
		{"tensor not in the index", func(t *testing.T, dir string) {
			writeTensors(t, dir, "m.safetensors", "a", "extra")
			writeMap(t, dir, map[string]string{"a": "m.safetensors"})
		}, []string{"tensor extra of m.safetensors", "not in"}},
		{"same name in two files", func(t *testing.T, dir string) {
			writeTensors(t, dir, "m.safetensors", "a", "b")
			writeTensors(t, dir, "n.safetensors", "a", "c")
			writeMap(t, dir, map[string]string{"a": "m.safetensors", "b": "m.safetensors", "c": "n.safetensors"})
		}, []string{"tensor a is in two files, m.safetensors and n.safetensors"}},
		{"index outside the folder", func(t *testing.T, dir string) {
			writeMap(t, dir, map[string]string{"a": "../m.safetensors"})
		}, []string{"tensor a", `"../m.safetensors"`}},
		{"index without map", func(t *testing.T, dir string) { writeFile(t, dir, indexName, []byte("{}")) }, []string{"weight_map"}},
		{"index is no JSON", func(t *testing.T, dir string) { writeFile(t, dir, indexName, []byte("{")) }, []string{"parse " + indexName}},
		{"index is a folder", func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, indexName), 0o700); err != nil {
				t.Fatal(err)
			}
		}, []string{indexName}},
		{"config is no JSON", func(t *testing.T, dir string) {
			writeTensors(t, dir, "model.safetensors", "a")
			writeFile(t, dir, configName, []byte("["))
		}, []string{"parse config.json"}},
		{"config too large", func(t *testing.T, dir string) {
			writeTensors(t, dir, "model.safetensors", "a")
			writeFile(t, dir, configName, make([]byte, maxConfig+1))
		}, []string{"config.json", "more than"}},
		{"truncated file", func(t *testing.T, dir string) {
			writeFile(t, dir, "model.safetensors", []byte{9, 0, 0, 0, 0, 0, 0, 0, '{'})
		}, []string{"model.safetensors", "truncated"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			test.make(t, dir)
			c, err := Open(dir)
			if err == nil {
				t.Fatalf("opened %s", names(c))
			}
			for _, part := range append(test.says, dir) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v\ndoesn't say %q", err, part)
				}
			}
		})
	}
}

func TestOpenMissing(t *testing.T) {
	t.Parallel()
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none") {
		t.Error(err)
	}
}

func TestSubByteIsCarriedAsBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeSpecs(t, dir, singleName, []safetensors.Spec{
		{Name: "even", DType: safetensors.F4, Shape: []int64{3, 6}},
		{Name: "odd", DType: safetensors.F4, Shape: []int64{2, 3}},
		{Name: "six", DType: safetensors.F6E2M3, Shape: []int64{4}},
	})
	c := mustOpen(t, dir)
	want := map[string][]int64{"even": {3, 3}, "odd": {3}, "six": {3}}
	for _, tensor := range c.Tensors() {
		nelems, _ := safetensors.Count(tensor.Shape)
		if tensor.DType != safetensors.U8 || tensor.Packed == "" || nelems != int64(len(tensor.Bytes)) || tensor.Shape[0] != want[tensor.Name][0] {
			t.Errorf("%+v", tensor)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTensors(t, dir, singleName, "a")
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if _, ok := c.Find("a"); ok {
		t.Error("a closed checkpoint still has tensors")
	}
}

func TestConfigForms(t *testing.T) {
	t.Parallel()
	nested := ParseConfig(map[string]any{"model_type": "vl", "text_config": map[string]any{
		"hidden_size": 64.0, "num_attention_heads": 8.0, "tie_word_embeddings": true,
	}})
	if nested.ModelType != "vl" || nested.HeadDim != 8 || nested.KVHeads != 8 || !nested.Tied {
		t.Errorf("nested %+v", nested)
	}
	odd := ParseConfig(map[string]any{"num_attention_heads": []any{1.0}, "architectures": "x", "head_dim": nil})
	if odd.Heads != 0 || odd.HeadDim != 0 || odd.Arch != "" {
		t.Errorf("odd %+v", odd)
	}
}
