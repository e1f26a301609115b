package tracing

import (
	"context"
	"math/rand/v2"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// idGenerator makes random ids, except for a root span whose ids the context
// forces. The random source of math/rand/v2 is seeded by the system, and ids
// are no secrets.
type idGenerator struct{}

var _ sdktrace.IDGenerator = idGenerator{}

func (idGenerator) NewIDs(ctx context.Context) (tid trace.TraceID, sid trace.SpanID) {
	if f, ok := ctx.Value(forcedKey{}).(*forcedIDs); ok && f.taken.CompareAndSwap(false, true) {
		return f.trace, f.span
	}
	for !tid.IsValid() {
		put(tid[:8], rand.Uint64())
		put(tid[8:], rand.Uint64())
	}
	return tid, idGenerator{}.NewSpanID(ctx, tid)
}

func (idGenerator) NewSpanID(context.Context, trace.TraceID) (sid trace.SpanID) {
	for !sid.IsValid() {
		put(sid[:], rand.Uint64())
	}
	return sid
}

func put(b []byte, v uint64) {
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
}
