package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// The phases of a cycle; [Cycle.Phase] opens one.
const (
	PhaseStage = "refit.stage"
	PhaseApply = "refit.apply"
)

// Span is one open piece of a cycle: a phase, or one span of a stage. It is
// safe for concurrent use, End is idempotent, and a nil Span records nothing.
type Span struct {
	c     *Cycle
	stage Stage // 0 for a phase
	span  trace.Span

	// under c.mu
	idle    bool  // time counts only while Work is open
	busy    union // while it counted
	ended   bool
	bytes   int64
	details details
}

// Stage opens a span of s under the span of ctx. An unknown stage opens nothing
// and is reported by [Cycle.Err], and with the record.
func (c *Cycle) Stage(ctx context.Context, s Stage) (context.Context, *Span) {
	if c == nil {
		return ctx, nil
	}
	if err := s.check(); err != nil {
		c.fault(fmt.Errorf("open stage span: %w", err))
		return ctx, nil
	}
	return c.openSpan(ctx, s, s.String(), trace.WithAttributes(AttrStage.String(s.String())))
}

// Phase opens the span of one call of the cycle ([PhaseStage], [PhaseApply])
// under the span of ctx. The time between phases is the caller's: it shows as a
// gap in the trace, and as pause_ms in the record.
func (c *Cycle) Phase(ctx context.Context, name string) (context.Context, *Span) {
	if c == nil {
		return ctx, nil
	}
	return c.openSpan(ctx, 0, name)
}

func (c *Cycle) openSpan(ctx context.Context, s Stage, name string, opts ...trace.SpanStartOption) (context.Context, *Span) {
	now := c.o.Now()
	sp := &Span{c: c, stage: s}
	inner, span := c.o.Tracer.Start(ctx, name, append(opts, trace.WithTimestamp(now))...)
	sp.span = span
	if !sp.begin(now) {
		span.End(trace.WithTimestamp(now))
		return ctx, nil
	}
	return inner, sp
}

// begin books the span, unless the cycle has ended.
func (sp *Span) begin(now time.Time) bool {
	c := sp.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record != nil {
		return false
	}
	c.open[sp] = struct{}{}
	if sp.stage == 0 {
		c.phases.begin(now)
		return true
	}
	sp.count(now, (*union).begin)
	return true
}

// End closes the span, as failed when err is not nil. Only the first call counts.
func (sp *Span) End(err error) {
	if sp == nil {
		return
	}
	c := sp.c
	c.mu.Lock()
	if sp.ended {
		c.mu.Unlock()
		return
	}
	now := c.o.Now()
	sp.finish(now, err)
	bytes, left := sp.bytes, sp.details
	idle, busy := sp.idle, sp.busy.at(now)
	c.mu.Unlock()

	left.emit(trace.ContextWithSpan(context.Background(), sp.span), c.o.Tracer)
	if bytes > 0 {
		sp.span.SetAttributes(AttrBytes.Int64(bytes))
	}
	if idle {
		sp.span.SetAttributes(AttrBusy.Float64(float64(ToMillis(busy))))
	}
	fail(sp.span, err)
	sp.span.End(trace.WithTimestamp(now))
}

// finish books the span; the caller holds the lock.
func (sp *Span) finish(now time.Time, err error) {
	c := sp.c
	sp.ended = true
	delete(c.open, sp)
	if sp.stage == 0 {
		c.phases.end(now)
		return
	}
	st := &c.stages[sp.stage-1]
	if !sp.idle {
		sp.count(now, (*union).end)
	}
	st.counted(err)
	if sp.stage == WireTransfer {
		c.bytes += sp.bytes
	} else if sp.bytes > 0 {
		sum, _ := st.metadata[metadataSize].(int64)
		st.setMetadata(metadataSize, sum+sp.bytes)
	}
}

// Set adds attributes to the span and, for a stage, to the metadata of its
// record; a later value of a key replaces an earlier one.
func (sp *Span) Set(attrs ...attribute.KeyValue) {
	if sp == nil {
		return
	}
	// Copied, so that the caller's slice need not live on the heap when nothing records.
	own := append([]attribute.KeyValue(nil), attrs...)
	sp.span.SetAttributes(own...)
	if sp.stage == 0 {
		return
	}
	sp.c.mu.Lock()
	defer sp.c.mu.Unlock()
	for _, kv := range own {
		sp.c.stages[sp.stage-1].setMetadata(string(kv.Key), kv.Value.AsInterface())
	}
}

// AddBytes adds to the bytes of the span and of its stage: for wire_transfer the
// record's bytes, for others "bytes" in the stage's metadata.
func (sp *Span) AddBytes(nbytes int64) {
	if sp == nil {
		return
	}
	sp.c.mu.Lock()
	defer sp.c.mu.Unlock()
	if nbytes < 0 {
		sp.c.faultLocked(fmt.Errorf("add bytes to stage %s: %d is negative", sp.stage, nbytes))
		return
	}
	sp.bytes += nbytes
}

// Event notes a moment on the span: see the Event names.
func (sp *Span) Event(name string, attrs ...attribute.KeyValue) {
	if sp == nil {
		return
	}
	own := append([]attribute.KeyValue(nil), attrs...)
	sp.span.AddEvent(name, trace.WithTimestamp(sp.c.o.Now()), trace.WithAttributes(own...))
}

// fail marks a span as failed, with its error; nil leaves it alone.
func fail(span trace.Span, err error) {
	if err == nil {
		return
	}
	span.SetAttributes(AttrErrorType.String(errorType(err)))
	span.SetStatus(codes.Error, err.Error())
}
