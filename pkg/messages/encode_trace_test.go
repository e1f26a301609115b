package messages_test

import (
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// TestEncodingIsAPartOfThePublishSpan: a trace shows what of a rank's publication is encoding and what is the server's.
func TestEncodingIsAPartOfThePublishSpan(t *testing.T) {
	t.Parallel()
	ctx, spans := natstest.Context(t, 20*time.Second), tracetest.NewSpanRecorder()
	cfg := memory()
	cfg.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), cfg)
	run, err := c.TakeRun(ctx, "job", 1)
	if err != nil {
		t.Fatal(err)
	}
	l := &messages.Layout{
		Regions: []int64{8}, Names: []string{"w"}, DTypes: []messages.DType{messages.BF16}, ShapeEnd: []uint32{1}, Shapes: []int64{4},
		Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: []int64{0, 4},
	}
	e := &messages.Endpoint{Host: "h", Incarnation: "i", Regions: []messages.EndpointRegion{{Base: 1, Nbytes: 8}}}
	if err := c.Publish(ctx, messages.Publication{Key: messages.Key{Run: run.Run, Version: 1}, World: 1, Layout: l, Endpoint: e}); err != nil {
		t.Fatal(err)
	}
	ended := spans.Ended()
	at := slices.IndexFunc(ended, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "encode" })
	if at < 0 {
		t.Fatalf("no span among %d", len(ended))
	}
	above := slices.ContainsFunc(ended, func(s sdktrace.ReadOnlySpan) bool {
		return s.SpanContext().SpanID() == ended[at].Parent().SpanID() && s.Name() != "encode"
	})
	if !above {
		t.Error("it is no part of the publish span")
	}
}
