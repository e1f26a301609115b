package tracesink

import (
	"context"
	"log/slog"
	"testing"
	"time"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = 10 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, c Config) *Sink {
	t.Helper()
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// builder makes OTLP requests of one trace, with times in milliseconds.
type builder struct {
	id   TraceID
	last byte
}

func (b *builder) span(parent *tracepb.Span, name string, from, to int, attrs ...*commonpb.KeyValue) *tracepb.Span {
	b.last++
	sp := &tracepb.Span{
		TraceId: b.id[:], SpanId: []byte{0, 0, 0, 0, 0, 0, 0, b.last}, Name: name,
		StartTimeUnixNano: at(from), EndTimeUnixNano: at(to), Attributes: attrs,
	}
	if parent != nil {
		sp.ParentSpanId = parent.GetSpanId()
	}
	return sp
}

func at(ms int) uint64 {
	return uint64(time.Unix(1_800_000_000, 0).Add(time.Duration(ms) * time.Millisecond).UnixNano())
}

func fail(sp *tracepb.Span, message string) *tracepb.Span {
	sp.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: message}
	return sp
}

func num(key string, v int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v}}}
}

func str(key, v string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v}}}
}

func from(service, instance string, spans ...*tracepb.Span) *tracepb.ResourceSpans {
	return &tracepb.ResourceSpans{
		Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{str("service.name", service), str("service.instance.id", instance)}},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}},
	}
}

func (s *Sink) export(t *testing.T, batches ...*tracepb.ResourceSpans) {
	t.Helper()
	if _, err := (traceService{s: s}).Export(t.Context(), &coltrace.ExportTraceServiceRequest{ResourceSpans: batches}); err != nil {
		t.Fatal(err)
	}
}

func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}
