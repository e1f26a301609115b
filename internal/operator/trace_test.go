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
