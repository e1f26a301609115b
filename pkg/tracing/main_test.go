package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that moves when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0).UTC()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// env is a getenv over pairs of name and value.
func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// rig is a cycle under test with everything that it writes to.
type rig struct {
	*clock
	lines  bytes.Buffer
	stdout bytes.Buffer
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{clock: newClock(), spans: tracetest.NewInMemoryExporter()}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans), sdktrace.WithIDGenerator(idGenerator{}),
		sdktrace.WithSampler(versionSampler{sdktrace.ParentBased(sdktrace.AlwaysSample())}))
	t.Cleanup(func() { _ = tp.Shutdown(context.Background()) })
	r.tracer = tp.Tracer("test")
	return r
}

func (r *rig) options(pairs ...string) CycleOptions {
	return CycleOptions{Tracer: r.tracer, Lines: &r.lines, Stdout: &r.stdout, Getenv: env(pairs...), Now: r.Now}
}

// span returns the only ended span called name.
func (r *rig) span(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range r.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans called %q, want 1, among %v", len(found), name, r.names())
	}
	return found[0]
}

func (r *rig) names() []string {
	var names []string
	for _, s := range r.spans.GetSpans() {
		names = append(names, s.Name)
	}
	return names
}

// only returns the record of the only line that was written.
func (r *rig) only(t *testing.T) Record {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.lines.String(), "\n"), "\n")
	if len(lines) != 1 {
		t.Fatalf("%d lines, want 1:\n%s", len(lines), r.lines.String())
	}
	rec, err := ParseLine(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func compact(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
