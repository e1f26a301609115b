package wiring

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// TestMeasuredCostsReplaceThePresets writes a file as the benchmark does and reads it as a receiver does.
func TestMeasuredCostsReplaceThePresets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "costs.json")
	err := rdma.SaveCosts(path, []rdma.Cost{
		{Transport: "tcp", Alpha: 20e-9, Beta: 1e-9}, {Transport: "local", Alpha: 0, Beta: 0.2e-9}, {Transport: rdma.CopyCost, Alpha: 5e-9, Beta: 0.1e-9},
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := (&Costs{Costs: path}).LoadCosts(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]plan.Costs{
		"tcp":   {PerSegment: plan.CostsStrided.PerSegment, PerRun: 20, PerByte: 1, PerStaged: 0.1, PerScatterRun: 5},
		"local": {PerSegment: plan.CostsLocal.PerSegment, PerRun: 1e-3, PerByte: 0.2, PerStaged: 0.1, PerScatterRun: 5},
		"nixl":  plan.CostsFlat, // not measured
		"other": plan.CostsStrided,
	}
	for name, w := range want {
		if got := table.Of(name); !near(got, w) {
			t.Errorf("%s: %+v, want %+v", name, got, w)
		}
	}
}

func near(a, b plan.Costs) bool {
	for _, p := range [][2]float64{
		{a.PerSegment, b.PerSegment}, {a.PerRun, b.PerRun}, {a.PerByte, b.PerByte}, {a.PerStaged, b.PerStaged}, {a.PerScatterRun, b.PerScatterRun},
	} {
		if d := p[0] - p[1]; d > 1e-6 || d < -1e-6 {
			return false
		}
	}
	return true
}

func TestCostsThatWereNamedMustBeThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.json")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "absent.json"), broken} {
		if table, err := (&Costs{Costs: path}).LoadCosts(slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s gives %v", path, table)
		}
	}
}

// TestWithoutAFileThePresetsHold must not run beside others: it changes the environment.
func TestWithoutAFileThePresetsHold(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	table, err := (&Costs{}).LoadCosts(slog.New(slog.DiscardHandler))
	if err != nil || table.Of("tcp") != plan.CostsStrided {
		t.Errorf("%v, %v", table, err)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if f := CostsFile(); f != systemCosts {
		t.Errorf("without a cache folder costs are kept in %s", f)
	}
}
