package operator

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/tracesink"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

func TestTraceOfAVersionIsDrawn(t *testing.T) {
	t.Parallel()
	c := open(t)
	ctx := natstest.Context(t, 20*time.Second)
	record, err := c.TakeRun(ctx, "job", 1)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := tracesink.Start(tracesink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(sink.HTTPURL()+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	k := key(record.Run, 5)
	_, span := provider.Tracer("test").Start(tracing.JoinVersion(ctx, record.Nonce, k.Version), "refit")
	span.End()
	if err := provider.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	id, err := TraceID(ctx, c, k)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := DrawTrace(ctx, sink.HTTPURL(), id, &b); err != nil || !strings.Contains(b.String(), "refit") {
		t.Errorf("%v\n%s", err, b.String())
	}
	for _, address := range []string{sink.HTTPURL() + "/else", "http://127.0.0.1:1"} {
		if err := DrawTrace(ctx, address, id, &b); cli.Code(err) != cli.ExitUnavailable {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestTraceOfAnOlderRun(t *testing.T) {
	t.Parallel()
	c := open(t)
	ctx := natstest.Context(t, 20*time.Second)
	old, err := c.TakeRun(ctx, "job-a", 1)
	if err != nil {
		t.Fatal(err)
	}
	k := key(old.Run, 1)
	commit(t, c, k, 1) // in no trace
	takeRun(t, c, "job-b", 1)
	if _, err := TraceID(ctx, c, k); err == nil || !strings.Contains(err.Error(), "carries none") {
		t.Errorf("got %v", err)
	}
	if _, err := TraceID(ctx, c, key(old.Run, 2)); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("got %v", err)
	}
}

// keep records a span of a version in a folder, as a process does that was started with --trace-dir.
func keep(t *testing.T, dir, model string, run, version uint64) {
	t.Helper()
	e, err := tracesink.Exporter(t.Context(), tracesink.FilesConfig{Dir: dir, Service: "drydock-receiver", Instance: "host"})
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(e))
	ctx := tracing.JoinVersion(t.Context(), [16]byte{byte(run)}, version)
	_, c := tracing.Start(ctx, tracing.CycleOptions{Model: model, Run: run, Version: version, Tracer: provider.Tracer("test")})
	c.Finish(tracing.OutcomeApplied, nil)
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestTraceOutOfFolders finds versions by what spans say of them, with no server to ask.
func TestTraceOutOfFolders(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	keep(t, a, "q", 1, 7)
	keep(t, a, "q", 2, 3)
	keep(t, b, "q", 2, 3) // another host, the same version
	for _, c := range []struct {
		version, says string
		spans         int
	}{{"7", "q, run 1, version 7", 1}, {"3", "q, run 2, version 3", 2}, {"2.3", "q, run 2, version 3", 2}, {Latest, "q, run 2, version 3", 2}} {
		var out bytes.Buffer
		if err := DrawFiles([]string{a, b}, "", c.version, &out); err != nil || !strings.Contains(out.String(), c.says) || strings.Count(out.String(), "\nrefit")+strings.Count(out.String(), "─ refit") == 0 {
			t.Errorf("%s: %v\n%s", c.version, err, out.String())
		}
		if n := strings.Count(out.String(), "outcome=applied"); n != c.spans {
			t.Errorf("%s: %d cycles, expected %d\n%s", c.version, n, c.spans, out.String())
		}
	}
	keep(t, b, "another", 9, 3)
	for _, c := range []struct {
		dirs           []string
		model, version string
		code           int
		says           string
	}{
		{[]string{a, b}, "", "3", cli.ExitUsage, "another and q"},
		{[]string{a, b}, "q", "3", cli.ExitOK, ""},
		{[]string{a}, "", "8", cli.ExitInput, "none of the 2 traces"},
		{[]string{a}, "x", "7", cli.ExitInput, "none of the 0 traces"},
		{[]string{a}, "", "new", cli.ExitUsage, "V, RUN.V or latest"},
		{[]string{a}, "", "1.x", cli.ExitUsage, "1.x"},
		{[]string{a + "/nowhere"}, "", "7", cli.ExitInput, "nowhere"},
	} {
		err := DrawFiles(c.dirs, c.model, c.version, &bytes.Buffer{})
		if cli.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("version %s of %q: exit code %d, %v; expected %d, %q", c.version, c.model, cli.Code(err), err, c.code, c.says)
		}
	}
}
