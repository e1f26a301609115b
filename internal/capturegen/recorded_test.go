package capturegen

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/checkpoint"
)

// recorded reads a capture of vLLM's own loader.
func recorded(t *testing.T, path string) *Capture {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Decode(b)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return c
}

// lines draws a case as sorted lines that don't depend on the order of parameters.
func (x *Case) lines(sources []Source) []string {
	var out []string
	for _, p := range x.Params {
		out = append(out, fmt.Sprintf("param %s %s %v", p.Name, p.DType, p.Shape))
	}
	for _, y := range x.Copies {
		ops, _ := json.Marshal(y.Ops)
		out = append(out, fmt.Sprintf("copy %s %s to %s %v", sources[y.Source].Name, ops, x.Params[y.Param].Name, y.Place))
	}
	for _, f := range x.Fills {
		out = append(out, fmt.Sprintf("fill %s %v with %g", x.Params[f.Param].Name, f.Place, f.Value))
	}
	for other, name := range x.Alias {
		out = append(out, fmt.Sprintf("alias %s of %s", other, name))
	}
	for _, i := range x.Unread {
		out = append(out, "unread "+sources[i].Name)
	}
	slices.Sort(out)
	return out
}

// The generated capture of a checkpoint equals what vLLM's loader did with it, copy by copy.
func TestGeneratedEqualsRecorded(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/captures/*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatal("no captures", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json.gz"), func(t *testing.T) {
			t.Parallel()
			compareCases(t, recorded(t, file), 5)
		})
	}
}

// The same for the shape of a real 30B model: 18,867 sources.
func TestGeneratedEqualsRecordedLarge(t *testing.T) {
	t.Parallel()
	const file = "../../../shared/captures/qwen3-moe-30b-shape.json.gz"
	if _, err := os.Stat(file); err != nil {
		t.Skipf("needs the shared captures: %v", err)
	}
	compareCases(t, recorded(t, file), 1)
}

func compareCases(t *testing.T, want *Capture, atLeast int) {
	t.Helper()
	config := checkpoint.ParseConfig(want.Config)
	config.ModelType = want.ModelType
	compared := 0
	generated := map[int]*Capture{}
	for i := range want.Cases {
		x := &want.Cases[i]
		if x.EP {
			continue
		}
		if generated[x.TP] == nil {
			c, err := FromSources(want.Sources, config, x.TP)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Notes) > 0 {
				t.Errorf("notes %q", c.Notes)
			}
			generated[x.TP] = c
		}
		have, err := generated[x.TP].Case(x.TP, x.Rank, false)
		if err != nil {
			t.Fatal(err)
		}
		if want.Family == "qwen2-moe" { // its shared experts have further names inside vLLM's modules
			have.Alias, x.Alias = nil, nil
		}
		compareLines(t, fmt.Sprintf("tp %d rank %d", x.TP, x.Rank), have.lines(want.Sources), x.lines(want.Sources))
		compared++
	}
	if compared < atLeast {
		t.Errorf("only %d cases compared", compared)
	}
}

// compareLines reports the lines that only one side has.
func compareLines(t *testing.T, what string, have, want []string) {
	t.Helper()
	if slices.Equal(have, want) {
		return
	}
	count := map[string]int{}
	for _, line := range have {
		count[line]++
	}
	for _, line := range want {
		count[line]--
	}
	shown := 0
	for _, line := range slices.Sorted(maps.Keys(count)) {
		if n := count[line]; n != 0 && shown < 10 {
			t.Errorf("%s: %+d %s", what, n, line)
			shown++
		}
	}
}
