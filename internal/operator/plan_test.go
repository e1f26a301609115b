package operator

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/cli"
)

// planned makes a tiny checkpoint, a capture of it for two ranks, and what four trainers hold.
func planned(t *testing.T, change func(*PlanRequest)) (*PlanReport, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if _, err := MakeCheckpoint(t.Context(), dir, tiny); err != nil {
		t.Fatal(err)
	}
	r := PlanRequest{Capture: filepath.Join(t.TempDir(), "c.json"), TP: 2, Ranks: []int{0, 1}}
	if _, err := MakeCapture(dir, 2, r.Capture, nil); err != nil {
		t.Fatal(err)
	}
	table, err := CheckpointTable(dir, "fsdp", 4)
	if err != nil {
		t.Fatal(err)
	}
	change(&r)
	return MakePlan(table, r)
}

func TestPlanIsShown(t *testing.T) {
	t.Parallel()
	report, err := planned(t, func(r *PlanRequest) { r.Classic = true })
	if err != nil {
		t.Fatal(err)
	}
	if s := report.Stats; s.Needed == 0 || s.Wire < s.Needed || s.Ranks != 4 || s.Amplification < 1 {
		t.Errorf("got %+v", s)
	}
	var text bytes.Buffer
	if err := report.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"model.embed_tokens.weight", "CLASSIC RANK"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	fewer, err := planned(t, func(r *PlanRequest) { r.Classic, r.MaxSegments = true, 1 })
	if err != nil {
		t.Fatal(err)
	}
	if a, b := report.Classic[0], fewer.Classic[0]; b.FullPulls <= a.FullPulls || b.Bytes <= a.Bytes {
		t.Errorf("a limit of 64 runs: %+v; of one run: %+v", a, b)
	}
	canonical, err := planned(t, func(r *PlanRequest) { r.Canonical = true })
	if err != nil {
		t.Fatal(err)
	}
	text.Reset()
	if err := canonical.Write(&text); err != nil || !strings.HasPrefix(text.String(), "plan: ") {
		t.Errorf("canonical form begins %.40q, %v", text.String(), err)
	}
}

// TestUnreadTensorsAreNamed: names that two conversions spell differently show up as tensors that nobody reads.
func TestUnreadTensorsAreNamed(t *testing.T) {
	t.Parallel()
	report, err := planned(t, func(*PlanRequest) {})
	if err != nil {
		t.Fatal(err)
	}
	report.Unread = append(report.Unread, "model.odd.weight")
	var text bytes.Buffer
	if err := report.Write(&text); err != nil || !strings.Contains(text.String(), "nobody here reads 1 of the trainers' tensors: model.odd.weight") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// TestPlanIsRestricted: less is asked for, less is needed, and what both restrictions leave is planned.
func TestPlanIsRestricted(t *testing.T) {
	t.Parallel()
	needed := func(change func(*PlanRequest)) int64 {
		report, err := planned(t, change)
		if err != nil {
			t.Fatal(err)
		}
		return report.Stats.Needed
	}
	all := needed(func(*PlanRequest) {})
	layer := needed(func(r *PlanRequest) { r.Layers = []int{1} })
	experts := needed(func(r *PlanRequest) { r.Layers, r.Experts = []int{1}, []int{0, 1} })
	down := needed(func(r *PlanRequest) { r.Layers, r.Select = []int{1}, []string{"*.down_proj.*"} })
	none := needed(func(r *PlanRequest) { r.Select = []string{"nothing.*"} })
	if layer == 0 || layer >= all || experts == 0 || experts >= layer || down == 0 || down >= layer || none != 0 {
		t.Errorf("bytes needed: all %d, layer 1 %d, two of its experts %d, its down projections %d, nothing %d", all, layer, experts, down, none)
	}
}

func TestParameterIsExplained(t *testing.T) {
	t.Parallel()
	report, err := planned(t, func(r *PlanRequest) { r.Param = "model.embed_tokens.weight" })
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Explanations) != 2 {
		t.Errorf("%d explanations for two ranks", len(report.Explanations))
	}
	var text bytes.Buffer
	if err := report.Write(&text); err != nil || !strings.Contains(text.String(), "destination rank 1") {
		t.Errorf("%v\n%s", err, text.String())
	}
	svg, err := report.Picture(2, "model.embed_tokens.weight")
	if err != nil || !strings.HasPrefix(svg, "<svg") {
		t.Errorf("%.40q, %v", svg, err)
	}
	if _, err := report.Picture(2, "nothing"); cli.Code(err) != cli.ExitInput {
		t.Errorf("a picture of nothing: %v", err)
	}
	if _, err := planned(t, func(r *PlanRequest) { r.Param = "nothing" }); cli.Code(err) != cli.ExitInput {
		t.Errorf("an explanation of nothing: %v", err)
	}
}

// TestRefusalNamesTheReasons: a hole in a capture is refused by parameter.
func TestRefusalNamesTheReasons(t *testing.T) {
	t.Parallel()
	_, err := planned(t, func(r *PlanRequest) {
		b, err := os.ReadFile(r.Capture)
		if err != nil {
			t.Fatal(err)
		}
		c, err := capturegen.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		c.Cases[0].Copies = c.Cases[0].Copies[1:]
		var changed bytes.Buffer
		if err := c.Encode(&changed); err != nil {
			t.Fatal(err)
		}
		write(t, r.Capture, changed.String())
	})
	refusal := Refused(err)
	if refusal == nil || len(refusal.Faults) == 0 || refusal.Faults[0].Param == "" || cli.Code(refusal.Err()) != cli.ExitMismatch {
		t.Fatalf("got %+v, %v", refusal, err)
	}
	var text bytes.Buffer
	if err := refusal.Write(&text); err != nil || !strings.Contains(text.String(), refusal.Faults[0].Param) {
		t.Errorf("%v\n%s", err, text.String())
	}
	if Refused(os.ErrNotExist) != nil {
		t.Error("another error is taken for a refusal")
	}
}

func TestPlanOfWrongFiles(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*PlanRequest){
		"no file":    func(r *PlanRequest) { r.Capture = "/nonexistent" },
		"no JSON":    func(r *PlanRequest) { write(t, r.Capture, "x") },
		"no such":    func(r *PlanRequest) { r.TP = 7 },
		"not a rank": func(r *PlanRequest) { r.Ranks = []int{5} },
	} {
		if _, err := planned(t, change); cli.Code(err) != cli.ExitInput {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		dir, layout string
		trainers    int
		code        int
	}{{"/nonexistent", "fsdp", 2, cli.ExitInput}, {"/nonexistent", "zebra", 2, cli.ExitUsage}} {
		if _, err := CheckpointTable(c.dir, c.layout, c.trainers); cli.Code(err) != c.code {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
