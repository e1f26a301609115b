package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerdicts judges the planner by the small sets of testdata, and by the whole of ../shared where it is. Files named
// torch2.13 are random: op-chains with every form of argument, illegal ones among them, run by torch itself.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ command, here, shared string }{
		{"plan", "plan_cases*.json.gz", ""}, // the whole sets take a minute: go run ./internal/oracle
		{"casts", "cast_cases.json.gz", "golden/cast_cases.json.gz"},
		{"captures", "capture_*.json.gz", "captures/*.json.gz"},
		{"layouts", "layout_*.json.gz", "layouts/*.json.gz"},
	} {
		t.Run(c.command, func(t *testing.T) {
			t.Parallel()
			judge(t, c.command, glob(t, "testdata", c.here))
		})
		t.Run(c.command+" of shared", func(t *testing.T) {
			t.Parallel()
			if c.shared == "" || testing.Short() {
				t.Skip("skipped: run go run ./internal/oracle " + c.command)
			}
			files := glob(t, filepath.Join("..", "..", "..", "shared"), c.shared)
			if len(files) == 0 {
				t.Skipf("skipped: ../shared/%s is not there", c.shared)
			}
			var small []string
			for _, f := range files {
				if !strings.Contains(f, "30b-shape") { // 24,000 copies: for the command
					small = append(small, f)
				}
			}
			judge(t, c.command, small)
		})
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func judge(t *testing.T, command string, files []string) {
	t.Helper()
	if len(files) == 0 {
		t.Fatalf("no files for %s", command)
	}
	var out bytes.Buffer
	if err := run(append([]string{command}, files...), &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestVerdictIsBad makes sure that the oracle sees what is wrong: digests of other bytes, refusals that
// are expected and don't come.
func TestVerdictIsBad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ command, file, old, new string }{
		{"plan", "plan_cases.json.gz", `"sha256":"`, `"sha256":"0`},
		{"plan", "plan_cases2.json.gz", `"expect":"view"`, `"expect":"refused"`},
		{"plan", "plan_cases.json.gz", `"exact_bytes":`, `"exact_bytes":1`},
		{"casts", "cast_cases.json.gz", `"sha256":"`, `"sha256":"0`},
		{"captures", "capture_gpt2.json.gz", `"xxh3_64":"`, `"xxh3_64":"1`},
		{"layouts", "layout_hsdp_qwen3_w4.json.gz", `"box":[[0,`, `"box":[[1,`},
	} {
		raw, err := readFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		bad := strings.Replace(compact(string(raw)), c.old, c.new, 1)
		if bad == compact(string(raw)) {
			t.Fatalf("%s: nothing to spoil", c.file)
		}
		name := filepath.Join(t.TempDir(), "bad.json")
		if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run([]string{c.command, name}, io.Discard); err == nil {
			t.Errorf("%s of %s with %s instead of %s: no complaint", c.command, c.file, c.new, c.old)
		}
	}
}

func compact(s string) string {
	return strings.NewReplacer(`": "`, `":"`, `": `, `":`, `, "`, `,"`).Replace(s)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"nothing"}, {"plan"}, {"plan", "/no/such/file"}, {"casts", filepath.Join("testdata", "plan_cases.json.gz")}} {
		if err := run(args, io.Discard); err == nil || errors.Is(err, errJudged) {
			t.Errorf("%q: got %v, expected an error about usage or input", args, err)
		}
	}
}
