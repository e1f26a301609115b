package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// versionDomain separates the ids of versions from every other hash.
const versionDomain = "drydock.version.v1"

// VersionContext is the span context of a version's root span. Every
// participant computes it alone, from the run's nonce and the version:
//
//	h        = SHA-256("drydock.version.v1" | nonce (16 bytes) | version (8 bytes, big endian))
//	trace id = h[0:16]
//	span id  = h[16:24]
//
// So the publishers' ranks, a receiver that comes late and one that never saw
// the announcement's headers all land in one trace. Rank 0 makes the span that
// has this id ([StartVersionRoot]); the others are its children ([JoinVersion]).
func VersionContext(nonce [16]byte, version uint64) trace.SpanContext {
	msg := append([]byte(versionDomain), nonce[:]...)
	h := sha256.Sum256(binary.BigEndian.AppendUint64(msg, version))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    trace.TraceID(h[0:16]),
		SpanID:     trace.SpanID(h[16:24]),
		TraceFlags: trace.FlagsSampled,
		Remote:     true,
	})
}

// JoinVersion makes spans started under the returned context children of the
// version's root span. A context that is in this trace already, say by the
// headers of a message, is returned unchanged: its parent and its sampling
// decision are better informed. Otherwise the sampler of [Setup] decides as for
// a root, from the trace id, so that all who use the same ratio decide alike.
func JoinVersion(ctx context.Context, nonce [16]byte, version uint64) context.Context {
	sc := VersionContext(nonce, version)
	if trace.SpanContextFromContext(ctx).TraceID() == sc.TraceID() {
		return ctx
	}
	return context.WithValue(trace.ContextWithRemoteSpanContext(ctx, sc), rootKey{}, sc.SpanID())
}

// StartVersionRoot starts the root span of a version, with exactly the ids of
// [VersionContext]. It belongs to rank 0; tr must come from a provider made by
// [Setup], since only its id generator takes the ids. The span ends when the
// publisher says so; children may outlive it. A trace that ctx is in already,
// the trainer's own, is linked.
func StartVersionRoot(ctx context.Context, tr trace.Tracer, nonce [16]byte, version uint64, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	sc := VersionContext(nonce, version)
	ids := &forcedIDs{trace: sc.TraceID(), span: sc.SpanID()}
	opts = append(opts[:len(opts):len(opts)], trace.WithNewRoot())
	if outer := trace.SpanContextFromContext(ctx); outer.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: outer}))
	}
	ctx, span := tr.Start(context.WithValue(ctx, forcedKey{}, ids), name, opts...)
	if span.SpanContext().TraceID() != sc.TraceID() {
		// A tracer that traces nothing: the ids still have to reach others.
		return JoinVersion(ctx, nonce, version), span
	}
	return ctx, span
}

// ForRank returns the provider that one of world equal participants should use
// for the spans below its own top span: tp, or for most ranks of a large world
// one that makes no spans and hands the parent's context on. At most 65 ranks
// show details, rank 0 always among them, evenly spread.
func ForRank(tp trace.TracerProvider, rank, world int) trace.TracerProvider {
	const shown = 64
	if every := (world + shown - 1) / shown; every > 1 && rank%every != 0 {
		return noop.NewTracerProvider()
	}
	return tp
}

type (
	rootKey   struct{} // value: trace.SpanID of a version's root, joined without having been told
	forcedKey struct{} // value: *forcedIDs
)

// forcedIDs are taken by the next root span, once.
type forcedIDs struct {
	trace trace.TraceID
	span  trace.SpanID
	taken atomic.Bool
}
