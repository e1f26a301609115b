package messages

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceContext writes and reads W3C trace context.
var traceContext = propagation.TraceContext{}

// headerCarrier keeps keys as they are. NATS headers are case-sensitive and the trace
// context's keys are lower-case; net/http's carrier would write Traceparent, which an
// exact reader misses.
type headerCarrier nats.Header

func (h headerCarrier) Get(key string) string { return nats.Header(h).Get(key) }
func (h headerCarrier) Set(key, value string) { nats.Header(h)[key] = []string{value} }
func (h headerCarrier) Keys() []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		keys = append(keys, k)
	}
	return keys
}

// headers makes the headers of a message with the trace context of ctx.
func (c *Control) headers(ctx context.Context) nats.Header {
	h := nats.Header{}
	traceContext.Inject(ctx, headerCarrier(h))
	return h
}

// traceHeaders keeps of a message's headers what Remote needs.
func traceHeaders(h nats.Header) map[string]string {
	out := make(map[string]string, 2)
	for _, key := range traceContext.Fields() {
		if v := h.Get(key); v != "" {
			out[key] = v
		}
	}
	return out
}

// remote returns ctx with the remote span that headers name.
func remote(ctx context.Context, headers map[string]string) context.Context {
	return traceContext.Extract(ctx, propagation.MapCarrier(headers))
}

// Templates of destinations: spans are named by them, so that their names are few.
const (
	tableTemplate  = "refit.{model}.v.{run}.{version}.t.{rank}"
	commitTemplate = "refit.{model}.c.{run}.{version}"
)

// span starts a messaging span as the OpenTelemetry conventions for messaging name it.
func (c *Control) span(ctx context.Context, op, opType, template, destination string, kind trace.SpanKind, key Key) (context.Context, trace.Span) {
	return c.tracer.Start(ctx, op+" "+template, trace.WithSpanKind(kind), trace.WithAttributes(
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.name", op),
		attribute.String("messaging.operation.type", opType),
		attribute.String("messaging.destination.name", destination),
		attribute.String("messaging.destination.template", template),
		attribute.String("drydock.model", c.cfg.Model),
		attribute.Int64("drydock.run", int64(key.Run)),
		attribute.Int64("drydock.version", int64(key.Version)),
	))
}

// endSpan ends a span with the error of what it measured.
func endSpan(s trace.Span, err error) {
	if err != nil {
		s.RecordError(err)
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}
