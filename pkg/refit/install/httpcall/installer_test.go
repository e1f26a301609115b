package httpcall

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
)

var version = refit.Installation{
	Model: "m", Key: messages.Key{Run: 1, Version: 5}, Dir: "/arenas/slot-1", Ranks: []int{0}, Files: []string{"/arenas/slot-1/rank-0.safetensors"},
}

// says answers a path with a status and a body, the first time or always.
func says(status int, body string, times int) func(http.ResponseWriter, int) bool {
	return func(w http.ResponseWriter, nth int) bool {
		if nth > times {
			return false
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
		return true
	}
}

const always = 1 << 30

// TestWhatAFailureLeavesBehind fails each step in each way, and looks at the class, at what was called, and at the engine.
func TestWhatAFailureLeavesBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path   string
		answer func(http.ResponseWriter, int) bool
		change func([]Step)
		class  refit.Class
		calls  string
		says   []string
	}{
		"pause refused": {
			path: "/pause", answer: says(400, "no such mode", always), class: refit.InstallRefused,
			calls: "/pause /resume", says: []string{`"pause"`, "status 400", "no such mode"},
		},
		"pause not answered by the engine": {
			path: "/pause", answer: says(503, "", always), class: refit.EngineUnreachable,
			calls: "/pause /resume", says: []string{"status 503, expected 2xx, without a body"},
		},
		"update refused": {
			path: "/update", answer: says(500, strings.Repeat("x", 600), always), class: refit.InstallRefused,
			calls: "/pause /update /resume", says: []string{"POST http://127.0.0.1", "/update", "status 500", strings.Repeat("x", headBytes) + "…"},
		},
		"update says something else": {
			path: "/update", answer: says(200, `{"success":false,"message":"shape"}`, always), class: refit.InstallRefused,
			calls: "/pause /update /resume", says: []string{`should be`, `"message":"shape"`},
		},
		"update answers no JSON": {
			path: "/update", answer: says(200, "ok", always), class: refit.InstallRefused,
			calls: "/pause /update /resume", says: []string{"no JSON"},
		},
		"update is redirected": {
			path: "/update", answer: says(307, "", always), class: refit.InstallRefused,
			calls: "/pause /update /resume", says: []string{"status 307"},
		},
		"update lost behind a gateway": {
			path: "/update", answer: says(504, "", always), class: refit.EngineUnknown,
			calls: "/pause /update /resume",
		},
		"update lost, but it can be undone": {
			path: "/update", answer: says(504, "", always), class: refit.EngineUnreachable,
			change: func(s []Step) { s[1].OnFailure = []Step{s[0].OnFailure[0]} },
			calls:  "/pause /update /resume /resume",
		},
		"resume fails after the update": {
			path: "/resume", answer: says(500, "stuck", always), class: refit.EngineUnknown,
			calls: "/pause /update /resume /resume", says: []string{"could not be undone", "stuck"},
		},
		"resume needs two attempts": {
			path: "/resume", answer: says(503, "", 1), calls: "/pause /update /resume /resume",
		},
		"what is not idempotent is not sent twice": {
			path: "/pause", answer: says(503, "", 1), class: refit.EngineUnreachable, calls: "/pause /resume",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			e.answer[c.path] = c.answer
			steps := e.steps()
			if c.change != nil {
				c.change(steps)
			}
			_, err := newInstaller(t, steps).Install(t.Context(), version)
			if c.class == "" && err != nil || c.class != "" && refit.ClassOf(err) != c.class {
				t.Errorf("class %s, want %s: %v", refit.ClassOf(err), c.class, err)
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error lacks %q: %v", part, err)
				}
			}
			if got := strings.ReplaceAll(strings.Join(e.calls, " "), "POST ", ""); got != c.calls {
				t.Errorf("calls %s, want %s", got, c.calls)
			}
			if e.paused && c.path != "/resume" {
				t.Error("the engine is left paused")
			}
		})
	}
}

func TestAnEngineIsResumedAlsoWhenTheCallerHasGone(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	ctx, cancel := context.WithCancel(t.Context())
	e.answer["/update"] = func(http.ResponseWriter, int) bool { cancel(); return false }
	e.stall()
	_, err := newInstaller(t, e.steps()).Install(ctx, version)
	if refit.ClassOf(err) != refit.EngineUnknown {
		t.Errorf("class %s: %v", refit.ClassOf(err), err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paused {
		t.Error("the engine is left paused")
	}
}

func TestAStepHasItsOwnTimeOut(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	e.stall()
	steps := e.steps()
	steps[1].Timeout = 50 * time.Millisecond
	_, err := newInstaller(t, steps).Install(t.Context(), version)
	if refit.ClassOf(err) != refit.EngineUnknown || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("class %s: %v", refit.ClassOf(err), err)
	}
}

func TestThePauseIsTheEnginesOwnWhereItTellsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func([]Step)
		holds  func(time.Duration) bool
	}{
		"told":             {func(s []Step) { s[1].PauseField = "results.0.ms" }, func(d time.Duration) bool { return d == 4500*time.Microsecond }},
		"marked":           {func([]Step) {}, func(d time.Duration) bool { return d > 20*time.Millisecond }},
		"of what changes":  {func(s []Step) { s[0].Pause, s[2].Pause = "", "" }, func(d time.Duration) bool { return d > 0 && d < 20*time.Millisecond }},
		"nothing is known": {func(s []Step) { s[0].Pause, s[2].Pause, s[1].Changes = "", "", false }, func(d time.Duration) bool { return d == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.answer["/pause"] = func(http.ResponseWriter, int) bool { <-time.After(25 * time.Millisecond); return false }
			steps := e.steps()
			c.change(steps)
			report, err := newInstaller(t, steps).Install(t.Context(), version)
			if err != nil || !c.holds(report.Pause) {
				t.Errorf("pause %v, %v", report.Pause, err)
			}
		})
	}
}

func TestErrorsDoNotTellPasswords(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	comeBack := e.vanish()
	defer comeBack()
	_, err := newInstaller(t, []Step{{URL: "http://user:secret@" + e.addr + "/pause", Name: "pause"}}).Install(t.Context(), version)
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), e.addr) {
		t.Errorf("%v", err)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	cfg, err := Load(strings.NewReader(`
steps:
  - name: pause
    url: http://h/pause
    pause: begin
    on_failure: [{url: "http://h/resume", idempotent: true}]
  - method: put
    url: http://h/{{.Version}}
    header: {Authorization: Bearer x}
    body: '{"dir":{{json .Dir}}}'
    status: [200, 202]
    fields: {results.0: ok}
    timeout: 1m30s
    changes: true
`))
	if err != nil {
		t.Fatal(err)
	}
	put := cfg.Steps[1]
	if len(cfg.Steps) != 2 || put.Timeout != 90*time.Second || !slices.Equal(put.Status, []int{200, 202}) || !put.Changes || cfg.Steps[0].OnFailure[0].URL != "http://h/resume" {
		t.Errorf("read as %+v", cfg)
	}
	if _, err := New(cfg); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"an unknown key": "steps: [{url: x, expcet: 3}]",
		"no YAML":        "steps: [",
		"a bad duration": "steps: [{url: x, timeout: 3}]\nmore: 1",
	} {
		if _, err := Load(strings.NewReader(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]Step{
		"no steps":              nil,
		"no url":                {{Name: "x"}},
		"bad template":          {{URL: "{{.Nope}}"}},
		"bad edge":              {{URL: "x", Pause: "middle"}},
		"negative timeout":      {{URL: "x", Timeout: -1}},
		"an undo of an undo":    {{URL: "x", OnFailure: []Step{{URL: "y", OnFailure: []Step{{URL: "z"}}}}}},
		"an undo that changes":  {{URL: "x", OnFailure: []Step{{URL: "y", Changes: true}}}},
		"too many":              slices.Repeat([]Step{{URL: "x"}}, maxSteps+1),
		"bad template in field": {{URL: "x", Fields: map[string]string{"a": "{{"}}},
	} {
		if _, err := New(Config{Steps: steps}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	body := []byte(`{"a":[{"b":null},{"c":1.50}],"s":"text","t":true}`)
	for path, want := range map[string]string{"a.0.b": "null", "a.1.c": "1.50", "s": "text", "t": "true", "a.0": `{"b":null}`} {
		if got, err := field(body, path); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"x", "a.2", "a.x", "s.x", "a.-1", ""} {
		if got, err := field(body, path); err == nil {
			t.Errorf("%q is %q", path, got)
		}
	}
}
