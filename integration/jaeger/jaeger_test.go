package jaeger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/drydock-rl/drydock/pkg/tracing"
)

var nonce = [16]byte{0xd0, 0xc5}

const (
	version = 42
	pause   = 120 * time.Millisecond
)

// TestVersionInJaeger sends one version by four publishers and four receivers,
// of which one applies after a pause, one fails, one gives back what it staged,
// and one is restarted in between.
func TestVersionInJaeger(t *testing.T) {
	s := startJaeger(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+s.otlp)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")

	for rank := range 4 {
		process(t, "drydock-publisher", fmt.Sprint(rank), func(tr trace.Tracer) { publish(t.Context(), tr, rank) })
	}
	process(t, "drydock-receiver", "applies", func(tr trace.Tracer) {
		ctx, c := stage(t.Context(), tr, nil)
		wait(t, pause) // the caller drains its engine: here only time passes
		apply(ctx, c)
	})
	process(t, "drydock-receiver", "fails", func(tr trace.Tracer) {
		_, c := stage(t.Context(), tr, errors.New("connection reset"))
		c.Finish(tracing.OutcomeFailed, errors.New("connection reset"))
	})
	process(t, "drydock-receiver", "releases", func(tr trace.Tracer) {
		_, c := stage(t.Context(), tr, nil)
		c.Finish(tracing.OutcomeReleased, nil)
	})
	process(t, "drydock-receiver", "restarts", func(tr trace.Tracer) {
		_, c := stage(t.Context(), tr, nil)
		c.Finish(tracing.OutcomeAbandoned, nil)
	})
	process(t, "drydock-receiver", "restarts", func(tr trace.Tracer) { apply(stage(t.Context(), tr, nil)) })

	const spans = 1 + 4*2 + 5*(1+1+7) + 2*(1+3) // root, publishers, cycles with their stages, applies
	tr := s.trace(t, tracing.VersionContext(nonce, version).TraceID().String(), spans)
	if len(tr.Spans) != spans {
		t.Errorf("%d spans, want %d", len(tr.Spans), spans)
	}
	checkShape(t, tr)
	checkPause(t, tr)
	checkFailure(t, tr)
	if again := tr.of("drydock-receiver/restarts", "refit"); len(again) != 2 || !again[0].failed() || again[1].failed() {
		t.Errorf("the restarted receiver shows %d cycles", len(again))
	}
	var services struct{ Data []string }
	if err := s.get(t.Context(), "/api/services", &services); err != nil || len(services.Data) < 2 {
		t.Errorf("services %q, %v", services.Data, err)
	}
}

// process runs work as a process of its own would: with its own providers, which
// have delivered everything when it ends.
func process(t *testing.T, service, instance string, work func(trace.Tracer)) {
	t.Helper()
	tel, err := tracing.Setup(t.Context(), tracing.SetupConfig{Service: service, Instance: instance})
	if err != nil {
		t.Fatal(err)
	}
	work(tel.Tracer())
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := errors.Join(tel.Flush(ctx), tel.Shutdown(ctx)); err != nil {
		t.Fatalf("%s %s: %v", service, instance, err)
	}
}

func publish(ctx context.Context, tr trace.Tracer, rank int) {
	if rank == 0 {
		var root trace.Span
		ctx, root = tracing.StartVersionRoot(ctx, tr, nonce, version, "refit version")
		defer root.End()
	} else {
		ctx = tracing.JoinVersion(ctx, nonce, version)
	}
	ctx, span := tr.Start(ctx, "publish")
	defer span.End()
	_, digest := tr.Start(ctx, "digest")
	digest.End()
}

// stage opens a cycle and goes through the seven stages before installation.
func stage(ctx context.Context, tr trace.Tracer, failure error) (context.Context, *tracing.Cycle) {
	ctx, c := tracing.Start(tracing.JoinVersion(ctx, nonce, version), tracing.CycleOptions{Tracer: tr, Version: version, Getenv: func(string) string { return "" }})
	sctx, phase := c.Phase(ctx, tracing.PhaseStage)
	for s := tracing.ControlDiscovery; s < tracing.Installation; s++ {
		_, sp := c.Stage(sctx, s)
		if s == tracing.WireTransfer {
			sp.Event(tracing.EventRetry, tracing.AttrSource.Int(3))
			sp.End(failure)
		}
		sp.End(nil)
	}
	phase.End(failure)
	return ctx, c
}

func apply(ctx context.Context, c *tracing.Cycle) {
	actx, phase := c.Phase(c.Activate(ctx), tracing.PhaseApply)
	for s := tracing.Installation; s <= tracing.RolloutReadiness; s++ {
		_, sp := c.Stage(actx, s)
		sp.End(nil)
	}
	phase.End(nil)
	c.Finish(tracing.OutcomeApplied, nil)
}

// wait lets time pass, since a pause is what is tested.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("test ended while time passed")
	}
}

// checkShape wants one root, and each span below the kind of span where it belongs.
func checkShape(t *testing.T, tr *shown) {
	t.Helper()
	parents := map[string]string{"refit version": "", "publish": "refit version", "digest": "publish", "refit": "refit version", tracing.PhaseStage: "refit", tracing.PhaseApply: "refit"}
	for _, s := range tracing.Stages() {
		parents[s.String()] = tracing.PhaseStage
		if s >= tracing.Installation {
			parents[s.String()] = tracing.PhaseApply
		}
	}
	for i := range tr.Spans {
		sp := &tr.Spans[i]
		name := ""
		p := tr.parent(t, sp)
		if p != nil {
			name = p.OperationName
		}
		if want, ok := parents[sp.OperationName]; !ok || name != want {
			t.Errorf("%s of %s hangs on %q, want %q", sp.OperationName, tr.instance(sp), name, want)
		}
		if p != nil && sp.OperationName != "publish" && sp.OperationName != "refit" && tr.instance(p) != tr.instance(sp) {
			t.Errorf("%s of %s hangs on a span of %s", sp.OperationName, tr.instance(sp), tr.instance(p))
		}
	}
	for _, s := range tracing.Stages() {
		if got := tr.of("drydock-receiver/applies", s.String()); len(got) != 1 {
			t.Errorf("stage %s: %d spans of the receiver that applies", s, len(got))
		}
	}
}

func checkPause(t *testing.T, tr *shown) {
	t.Helper()
	st, ap := tr.of("drydock-receiver/applies", tracing.PhaseStage), tr.of("drydock-receiver/applies", tracing.PhaseApply)
	if len(st) != 1 || len(ap) != 1 {
		t.Fatalf("%d spans of stage, %d of apply", len(st), len(ap))
	}
	if gap := time.Duration(ap[0].StartTime-st[0].end()) * time.Microsecond; gap < pause {
		t.Errorf("gap of %v between stage and apply, want at least %v", gap, pause)
	}
	for i := range tr.Spans {
		sp := &tr.Spans[i]
		in := sp.StartTime < ap[0].StartTime && sp.end() > st[0].end() && tr.instance(sp) == tr.instance(st[0])
		if in && sp.OperationName != "refit" {
			t.Errorf("%s lies in the pause", sp.OperationName)
		}
	}
}

func checkFailure(t *testing.T, tr *shown) {
	t.Helper()
	for _, name := range []string{"refit", tracing.PhaseStage, "wire_transfer"} {
		if got := tr.of("drydock-receiver/fails", name); len(got) != 1 || !got[0].failed() {
			t.Errorf("%s of the receiver that fails is not marked as failed", name)
		}
	}
	if wire := tr.of("drydock-receiver/fails", "wire_transfer"); len(wire) == 1 {
		if text := fmt.Sprint(value(wire[0].Tags, "otel.status_description")); text != "connection reset" {
			t.Errorf("the failed span says %q", text)
		}
		if len(wire[0].Logs) != 1 {
			t.Errorf("%d events on wire_transfer, want the retry", len(wire[0].Logs))
		}
	}
	if got := tr.of("drydock-receiver/releases", tracing.PhaseApply); len(got) != 0 {
		t.Error("the receiver that gave back shows an apply")
	}
}

// TestDemoInJaeger runs the whole demo with its real programs, and finds each of
// its versions in Jaeger.
func TestDemoInJaeger(t *testing.T) {
	s := startJaeger(t)
	bin := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "../../cmd/...").CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "refitctl"), "demo", "--json", "--versions", "2", "--otlp", "grpc://"+s.otlp)
	cmd.Stderr = t.Output()
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=", "OTEL_EXPORTER_OTLP_ENDPOINT=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("demo: %v", err)
	}
	var demo struct {
		Versions []struct {
			Version   uint64
			Receivers []tracing.Record
		}
	}
	if err := json.Unmarshal(out, &demo); err != nil || len(demo.Versions) != 2 {
		t.Fatalf("demo's report: %d versions, %v", len(demo.Versions), err)
	}
	for _, v := range demo.Versions {
		checkDemoVersion(t, s, v.Receivers)
	}
}

func checkDemoVersion(t *testing.T, s *server, receivers []tracing.Record) {
	t.Helper()
	id := receivers[0].Drydock.TraceID
	tr := s.trace(t, id, 4*4+len(receivers)*12)
	processes, roots := map[string]bool{}, 0
	for i := range tr.Spans {
		processes[tr.instance(&tr.Spans[i])] = true
		if tr.parent(t, &tr.Spans[i]) == nil {
			roots++
		}
	}
	if roots != 1 || len(processes) != 4+len(receivers) {
		t.Errorf("trace %s: %d roots, processes %v", id, roots, processes)
	}
	for _, r := range receivers {
		cycle := tr.byID(r.Drydock.SpanID)
		if r.Drydock.TraceID != id || cycle == nil || cycle.OperationName != "refit" {
			t.Errorf("the record's span %s/%s is not a cycle of trace %s", r.Drydock.TraceID, r.Drydock.SpanID, id)
			continue
		}
		for _, stage := range tracing.Stages() {
			want := min(r.Stages.Get(stage).Count, 1)
			if got := len(tr.of(tr.instance(cycle), stage.String())); got < want && stage != tracing.RolloutReadiness {
				t.Errorf("stage %s of %s is in the record, not in the trace", stage, tr.instance(cycle))
			}
		}
	}
}
