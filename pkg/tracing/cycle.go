package tracing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// ErrAbandoned is the error of a cycle that was finished without one although
// its outcome is [OutcomeAbandoned], and of spans that were still open then.
var ErrAbandoned = errors.New("refit cycle left unfinished")

// maxFaults bounds the misuses that one cycle remembers.
const maxFaults = 8

// Cycle is the recorder of one refit. It is safe for concurrent use, and a nil
// Cycle records nothing.
type Cycle struct {
	o    CycleOptions
	span trace.Span

	mu        sync.Mutex
	started   time.Time
	stages    [nstages]stageState
	explained union // any stage
	phases    union
	open      map[*Span]struct{}
	bytes     int64
	sizes     Sizes
	coldWarm  string
	faults    []error
	record    *Record // set when finished
}

// stageState is what a cycle knows of one stage.
type stageState struct {
	wall     union
	added    time.Duration // by AddDuration, beside the spans
	count    int
	statuses []Status // distinct, in the order in which they came
	metadata map[string]any
}

type cycleKey struct{}

// Start opens a cycle and its span and makes it the context's active one.
// It returns ctx unchanged and nil when cycles are off (MX_REFIT_TIMING=0), and
// when ctx has an active cycle already: the outer one wins, and hears the stages.
func Start(ctx context.Context, o CycleOptions) (context.Context, *Cycle) {
	if FromContext(ctx) != nil || lookup(o.Getenv, EnvTiming) == "0" {
		return ctx, nil
	}
	o = o.withDefaults()
	c := &Cycle{o: o, started: o.Now(), open: map[*Span]struct{}{}, coldWarm: "unknown"}
	if err := o.validate(); err != nil {
		c.fault(err)
	}
	ctx, c.span = o.Tracer.Start(ctx, "refit",
		trace.WithTimestamp(c.started), trace.WithLinks(o.Links...), trace.WithAttributes(o.spanAttributes()...))
	return context.WithValue(ctx, cycleKey{}, c), c
}

// FromContext returns the active cycle, or nil.
func FromContext(ctx context.Context) *Cycle {
	c, _ := ctx.Value(cycleKey{}).(*Cycle)
	return c
}

// Activate makes c the active cycle of ctx and its span the current one, for
// the part of a refit that happens in another call. A cycle that is active in
// ctx already is replaced: the staged version knows better to whom it belongs.
func (c *Cycle) Activate(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(trace.ContextWithSpan(ctx, c.span), cycleKey{}, c)
}

// SpanContext identifies the cycle's span, for links and for propagation. It is
// invalid for a nil cycle and where nothing traces.
func (c *Cycle) SpanContext() trace.SpanContext {
	if c == nil {
		return trace.SpanContext{}
	}
	return c.span.SpanContext()
}

// Event notes a moment of the whole cycle, on its span: see the Event names.
func (c *Cycle) Event(name string, attrs ...attribute.KeyValue) {
	if c == nil {
		return
	}
	own := append([]attribute.KeyValue(nil), attrs...)
	c.span.AddEvent(name, trace.WithTimestamp(c.o.Now()), trace.WithAttributes(own...))
}

// NotApplicable says that this path has no such work, and why. A stage that
// has spans refuses, and the misuse is reported.
func (c *Cycle) NotApplicable(s Stage, reason string) {
	if c != nil {
		c.mark(s, StatusNotApplicable, "reason", reason)
	}
}

// Combined says that the time of s lies in the spans of with.
func (c *Cycle) Combined(s, with Stage) {
	if c == nil {
		return
	}
	if err := with.check(); err != nil {
		c.fault(fmt.Errorf("combine %s: %w", s, err))
		return
	}
	c.mark(s, StatusCombined, "combined_with", with.String())
}

func (c *Cycle) mark(s Stage, st Status, key, value string) {
	if err := s.check(); err != nil {
		c.fault(fmt.Errorf("mark stage %s: %w", st, err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	state := &c.stages[s-1]
	if state.count > 0 || state.wall.open > 0 {
		c.faultLocked(fmt.Errorf("mark stage %s as %s: it has measured spans", s, st))
		return
	}
	state.statuses = []Status{st}
	if value != "" {
		state.setMetadata(key, value)
	}
}

// AddDuration adds a duration that was measured elsewhere, for instance by an
// engine that reports its own pause. It counts as one span; it is taken to have
// happened outside the spans of other stages.
func (c *Cycle) AddDuration(s Stage, d time.Duration, err error) {
	if c == nil {
		return
	}
	if e := s.check(); e != nil {
		c.fault(fmt.Errorf("add duration: %w", e))
		return
	}
	if d < 0 {
		c.fault(fmt.Errorf("add duration to stage %s: %v is negative", s, d))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stages[s-1].added += d
	c.stages[s-1].counted(err)
}

// SetCold says whether this refit had to build its plan (cold) or found it (warm).
func (c *Cycle) SetCold(cold bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coldWarm = "warm"
	if cold {
		c.coldWarm = "cold"
	}
}

// SetSizes replaces the byte counts of the cycle.
func (c *Cycle) SetSizes(s Sizes) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes = s
}

// Err returns what was done to the cycle that makes no sense (an unknown stage,
// a stage both measured and not applicable), joined, or nil.
func (c *Cycle) Err() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.faults...)
}

// Finish ends the cycle, its span and whatever is still open in it, emits the
// record, and returns it. Only the first call counts; later ones return the
// same record, so that a deferred Finish(OutcomeAbandoned, nil) covers every
// other way out of the caller. A nil cycle returns nil.
func (c *Cycle) Finish(outcome Outcome, err error) *Record {
	if c == nil {
		return nil
	}
	if outcome == OutcomeAbandoned && err == nil {
		err = ErrAbandoned
	}
	c.interrupt()
	c.mu.Lock()
	if c.record != nil {
		defer c.mu.Unlock()
		return c.record
	}
	now := c.o.Now()
	c.record = c.build(now, outcome, err)
	c.mu.Unlock()

	if outcome == OutcomeSuperseded {
		c.span.AddEvent(EventSuperseded, trace.WithTimestamp(now))
	}
	c.span.SetAttributes(AttrOutcome.String(string(outcome)))
	if err != nil {
		c.span.SetAttributes(AttrErrorType.String(errorType(err)))
		c.span.SetStatus(codes.Error, err.Error())
	}
	c.span.End(trace.WithTimestamp(now))
	c.emit()
	return c.record
}

// interrupt ends the spans that are still open: a panic skipped their End.
func (c *Cycle) interrupt() {
	c.mu.Lock()
	left := make([]*Span, 0, len(c.open))
	for sp := range c.open {
		left = append(left, sp)
	}
	c.mu.Unlock()
	for _, sp := range left {
		sp.End(ErrAbandoned)
	}
}

func (c *Cycle) fault(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faultLocked(err)
}

func (c *Cycle) faultLocked(err error) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, err)
	}
}

func (st *stageState) counted(err error) {
	st.count++
	s := StatusOK
	if err != nil {
		s = StatusError
	}
	for _, have := range st.statuses {
		if have == s {
			return
		}
	}
	st.statuses = append(st.statuses, s)
}

func (st *stageState) setMetadata(key string, value any) {
	if st.metadata == nil {
		st.metadata = map[string]any{}
	}
	st.metadata[key] = value
}
