package tracing

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestReference replays what testdata/reference.txt records: the lines that the
// reference's own recorder wrote for these three cycles.
func TestReference(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/reference.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i, replay := range []func(*rig){replayFull, replayEmpty, replayFailed} {
		r := newRig(t)
		replay(r)
		got := strings.TrimSpace(r.lines.String())
		if g, w := withoutExtension(t, got), withoutExtension(t, want[i]); !reflect.DeepEqual(g, w) {
			t.Errorf("cycle %d\n got %s\nwant %s", i, got, want[i])
		}
		if g, w := keys(t, got), keys(t, want[i]); !reflect.DeepEqual(g[:len(w)], w) {
			t.Errorf("cycle %d: order of keys\n got %v\nwant %v", i, g, w)
		}
	}
}

func replayFull(r *rig) {
	o := r.options()
	o.Version, o.Rank, o.TP, o.EP = 7, 2, Parallel{1, 4}, Parallel{0, 2}
	ctx, c := Start(r.ctx(), o)
	c.SetCold(true)
	step := func(s Stage, d time.Duration, err error, use func(*Span)) {
		_, sp := c.Stage(ctx, s)
		r.advance(d)
		if use != nil {
			use(sp)
		}
		sp.End(err)
	}
	step(ControlDiscovery, 12500*time.Microsecond, nil, nil)
	step(TransferPlanning, 250*time.Millisecond, nil, func(sp *Span) {
		sp.Set(attr("segments", 12), attr("kind", "exact"))
	})
	step(WireTransfer, 2*time.Second, nil, func(sp *Span) { sp.AddBytes(1 << 30) })
	step(WireTransfer, 1500*time.Millisecond, errors.New("boom"), func(sp *Span) { sp.Set(attr("transport", "tcp")) })
	c.NotApplicable(SourcePreparation, "served in place")
	c.Combined(Transformation, WireTransfer)
	r.advance(500 * time.Millisecond)
	step(Installation, 400*time.Microsecond, nil, nil)
	c.AddDuration(RolloutReadiness, 3*time.Millisecond, nil)
	r.advance(3 * time.Millisecond)
	c.Finish(OutcomeApplied, nil)
}

func replayEmpty(r *rig) {
	o := r.options()
	o.Rank = -1
	_, c := Start(r.ctx(), o)
	c.Finish(OutcomeReleased, nil)
}

func replayFailed(r *rig) {
	o := r.options()
	o.Version = 1<<64 - 1
	ctx, c := Start(r.ctx(), o)
	c.SetCold(false)
	_, sp := c.Stage(ctx, TransferPlanning)
	r.advance(time.Millisecond)
	sp.End(errors.New("boom"))
	r.advance(time.Second)
	c.Finish(OutcomeFailed, errors.New("boom"))
}

func withoutExtension(t *testing.T, line string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(line, RecordPrefix+" ")))
	d.UseNumber() // so that 5000 is not 5000.0, and large integers stay exact
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	delete(m, "drydock")
	return m
}

// keys lists the record's own keys and those of the stages, in order.
func keys(t *testing.T, line string) []string {
	t.Helper()
	var out []string
	d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(line, RecordPrefix+" ")))
	for depth := 0; ; {
		tok, err := d.Token()
		if err != nil {
			return out
		}
		switch tok := tok.(type) {
		case json.Delim:
			depth += map[json.Delim]int{'{': 1, '}': -1}[tok]
		case string:
			if depth == 1 || depth == 2 {
				out = append(out, tok)
			}
		}
	}
}

func TestMillis(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0.0", time.Microsecond: "0.001", 1499 * time.Nanosecond: "0.001", 1500 * time.Nanosecond: "0.002",
		10 * time.Millisecond: "10.0", 12_345_678 * time.Nanosecond: "12.346", 1200 * time.Microsecond: "1.2",
		1000 * time.Hour: "3600000000.0",
	} {
		if got := compact(t, ToMillis(d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestParseStage(t *testing.T) {
	t.Parallel()
	for _, s := range Stages() {
		if got, err := ParseStage(s.String()); err != nil || got != s {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, name := range []string{"", "download", "Wire_Transfer", "wire_transfer ", "Stage(3)"} {
		if _, err := ParseStage(name); !errors.Is(err, ErrUnknownStage) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestParseLine(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "MX_REFIT_TIMING", "MX_REFIT_TIMING {", `MX_REFIT_TIMING {"stages":{"download":{}}}`} {
		if r, err := ParseLine(bad); err == nil {
			t.Errorf("%q: parsed as %+v", bad, r)
		}
	}
	r, err := ParseLine(`2026-01-01 INFO worker: MX_REFIT_TIMING {"version":3,"stages":{"wire_transfer":{"status":"ok","count":2}}}`)
	if err != nil || r.Version != 3 || r.Stages.Get(WireTransfer).Count != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

func FuzzParseLine(f *testing.F) {
	b, err := os.ReadFile("testdata/reference.txt")
	if err != nil {
		f.Fatal(err)
	}
	for l := range bytes.Lines(b) {
		f.Add(string(l))
	}
	f.Fuzz(func(t *testing.T, line string) {
		r, err := ParseLine(line)
		if err != nil {
			return
		}
		again, err := r.Line()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseLine(again); err != nil {
			t.Fatalf("%v in %s", err, again)
		}
	})
}
