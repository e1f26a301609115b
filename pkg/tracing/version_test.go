package tracing

import (
	"context"
	"encoding/hex"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

var nonce = [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// TestVersionContextGolden holds the formula: other languages compute it too.
// In Python: sha256(b"drydock.version.v1" + bytes(range(16)) + (42).to_bytes(8, "big")).
func TestVersionContextGolden(t *testing.T) {
	t.Parallel()
	sc := VersionContext(nonce, 42)
	got := sc.TraceID().String() + " " + sc.SpanID().String()
	if want := "7122df1375136f4f2c559bf566e5fb10 eaf7d93f4c1fb6ea"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !sc.IsRemote() || !sc.IsSampled() {
		t.Errorf("remote %v, sampled %v", sc.IsRemote(), sc.IsSampled())
	}
}

func TestVersionsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[trace.TraceID]string{}
	for n := range byte(4) {
		for v := range uint64(64) {
			id, what := VersionContext([16]byte{n}, v).TraceID(), fmt.Sprintf("nonce %d version %d", n, v)
			if seen[id] != "" {
				t.Errorf("%s and %s share a trace", seen[id], what)
			}
			seen[id] = what
		}
	}
}

// TestOneTrace has three processes that never talk make one trace.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	root, other, receiver := newRig(t), newRig(t), newRig(t)
	rctx, span := StartVersionRoot(t.Context(), root.tracer, nonce, 42, "version 42")
	_, child := root.tracer.Start(rctx, "publish")
	_, stranger := root.tracer.Start(rctx, "elsewhere", trace.WithNewRoot())
	stranger.End()
	child.End()
	span.End()
	_, s := other.tracer.Start(JoinVersion(t.Context(), nonce, 42), "publish")
	s.End()
	_, c := Start(JoinVersion(t.Context(), nonce, 42), receiver.options())
	rec := c.Finish(OutcomeApplied, nil)

	want := VersionContext(nonce, 42)
	if sc := root.span(t, "version 42").SpanContext; sc.TraceID() != want.TraceID() || sc.SpanID() != want.SpanID() {
		t.Errorf("root span is %s/%s", sc.TraceID(), sc.SpanID())
	}
	if root.span(t, "version 42").Parent.IsValid() {
		t.Error("the root span has a parent")
	}
	if root.span(t, "elsewhere").SpanContext.TraceID() == want.TraceID() {
		t.Error("forced ids were taken twice")
	}
	for name, stub := range map[string]tracetest.SpanStub{
		"rank 0": root.span(t, "publish"), "rank 1": other.span(t, "publish"), "receiver": receiver.span(t, "refit"),
	} {
		if stub.SpanContext.TraceID() != want.TraceID() || stub.Parent.SpanID() != want.SpanID() {
			t.Errorf("%s: trace %s, parent %s", name, stub.SpanContext.TraceID(), stub.Parent.SpanID())
		}
	}
	if rec.Drydock.TraceID != want.TraceID().String() {
		t.Errorf("record names trace %s", rec.Drydock.TraceID)
	}
}

func TestJoinKeepsTheHeadersParent(t *testing.T) {
	t.Parallel()
	sc := VersionContext(nonce, 42)
	for _, flags := range []string{"00", "01"} {
		carrier := propagation.MapCarrier{"traceparent": "00-" + sc.TraceID().String() + "-00000000000000ff-" + flags}
		ctx := propagation.TraceContext{}.Extract(t.Context(), carrier)
		r := newRig(t)
		_, span := r.tracer.Start(JoinVersion(ctx, nonce, 42), "discovery")
		if got := span.IsRecording(); got != (flags == "01") {
			t.Errorf("flags %s: recorded %v", flags, got)
		}
		span.End()
		if flags == "01" && r.span(t, "discovery").Parent.SpanID().String() != "00000000000000ff" {
			t.Error("the parent of the headers is lost")
		}
	}
}

// TestSamplingIsConsistent samples by ratio in two processes and wants the same
// versions in both, by root and by joining.
func TestSamplingIsConsistent(t *testing.T) {
	t.Parallel()
	sampler, err := samplerFrom(env("OTEL_TRACES_SAMPLER", "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG", "0.25"))
	if err != nil {
		t.Fatal(err)
	}
	var tracers [2]trace.Tracer
	for i := range tracers {
		tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(idGenerator{}), sdktrace.WithSampler(versionSampler{sampler}))
		t.Cleanup(func() { _ = tp.Shutdown(context.Background()) })
		tracers[i] = tp.Tracer("test")
	}
	const versions = 4000
	sampled := 0
	for v := range uint64(versions) {
		_, root := StartVersionRoot(t.Context(), tracers[0], nonce, v, "version")
		jctx, join := tracers[1].Start(JoinVersion(t.Context(), nonce, v), "refit")
		_, below := tracers[1].Start(jctx, "stage")
		if r, j, b := root.IsRecording(), join.IsRecording(), below.IsRecording(); r != j || j != b {
			t.Fatalf("version %d: root %v, joined %v, below %v", v, r, j, b)
		}
		if root.IsRecording() {
			sampled++
		}
	}
	if share := float64(sampled) / versions; share < 0.2 || share > 0.3 {
		t.Errorf("%.3f of the versions are sampled, want about 0.25", share)
	}
}

func TestRootLinksTheTrainersTrace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, step := r.tracer.Start(t.Context(), "trainer step")
	_, root := StartVersionRoot(ctx, r.tracer, nonce, 42, "version 42")
	root.End()
	step.End()
	links := r.span(t, "version 42").Links
	if len(links) != 1 || links[0].SpanContext.SpanID() != step.SpanContext().SpanID() {
		t.Errorf("links: %+v", links)
	}
}

// TestNoTracerStillPropagates checks that a process without an exporter hands
// the version's trace on to one that has one.
func TestNoTracerStillPropagates(t *testing.T) {
	t.Parallel()
	ctx, span := StartVersionRoot(t.Context(), noop.NewTracerProvider().Tracer(""), nonce, 42, "version 42")
	defer span.End()
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	sc := VersionContext(nonce, 42)
	if want := "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"; carrier["traceparent"] != want {
		t.Errorf("%q, want %q", carrier["traceparent"], want)
	}
}

func TestForRank(t *testing.T) {
	t.Parallel()
	tp := sdktrace.NewTracerProvider()
	defer func() { _ = tp.Shutdown(context.Background()) }()
	for _, test := range []struct{ world, shown int }{{1, 1}, {64, 64}, {65, 33}, {128, 64}, {1000, 63}, {100_000, 64}} {
		shown := 0
		for rank := range test.world {
			if ForRank(tp, rank, test.world) == trace.TracerProvider(tp) {
				shown++
			}
		}
		if shown != test.shown {
			t.Errorf("world %d: %d ranks show details, want %d", test.world, shown, test.shown)
		}
		if ForRank(tp, 0, test.world) != trace.TracerProvider(tp) {
			t.Errorf("world %d: rank 0 is silent", test.world)
		}
	}
}

func TestForRankHandsTheParentOn(t *testing.T) {
	t.Parallel()
	ctx := JoinVersion(t.Context(), nonce, 42)
	tp := sdktrace.NewTracerProvider()
	defer func() { _ = tp.Shutdown(context.Background()) }()
	below, span := ForRank(tp, 1, 1000).Tracer("").Start(ctx, "upload")
	span.End()
	if got := trace.SpanContextFromContext(below); got.SpanID() != VersionContext(nonce, 42).SpanID() {
		t.Errorf("context below a silent rank is %s", got.SpanID())
	}
}

func TestIDsAreValid(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		tid, sid := idGenerator{}.NewIDs(t.Context())
		if !tid.IsValid() || !sid.IsValid() || seen[tid.String()] || seen[sid.String()] {
			t.Fatalf("%s %s", hex.EncodeToString(tid[:]), sid)
		}
		seen[tid.String()], seen[sid.String()] = true, true
	}
}
