package tracesink

import (
	"cmp"
	"slices"
	"sync"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// store keeps spans by trace. Within a trace a span id is unique: a request that
// was sent twice changes nothing.
type store struct {
	maxTraces, maxSpans int

	mu      sync.Mutex
	traces  map[TraceID]*stored
	order   []TraceID // by arrival of the first span
	nspans  int
	dropped int
	changed chan struct{} // closed at the next change
}

type stored struct {
	spans map[SpanID]rawSpan
}

type rawSpan struct {
	res  *resourcepb.Resource
	span *tracepb.Span
}

// Summary is one line about a trace.
type Summary struct {
	ID    TraceID   `json:"trace_id"`
	Root  string    `json:"root"` // name of its root span; empty while that has not come
	Spans int       `json:"spans"`
	Start time.Time `json:"start"`
}

func newStore(maxTraces, maxSpans int) *store {
	return &store{maxTraces: maxTraces, maxSpans: maxSpans, traces: map[TraceID]*stored{}, changed: make(chan struct{})}
}

func (s *store) add(batches []*tracepb.ResourceSpans) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range batches {
		for _, ss := range rs.GetScopeSpans() {
			for _, sp := range ss.GetSpans() {
				s.addSpan(rawSpan{rs.GetResource(), sp})
			}
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// addSpan keeps one span, and makes room for it.
func (s *store) addSpan(r rawSpan) {
	tid, sid := TraceID(sized(r.span.GetTraceId(), 16)), SpanID(sized(r.span.GetSpanId(), 8))
	if tid == (TraceID{}) || sid == (SpanID{}) {
		s.dropped++
		return
	}
	t := s.traces[tid]
	if t == nil {
		s.evict(func() bool { return len(s.traces) >= s.maxTraces })
		t = &stored{spans: map[SpanID]rawSpan{}}
		s.traces[tid] = t
		s.order = append(s.order, tid)
	}
	if _, again := t.spans[sid]; again {
		t.spans[sid] = r
		return
	}
	// Other traces make room; a trace that alone is over the limit stays as it is.
	s.evict(func() bool { return s.nspans >= s.maxSpans && s.order[0] != tid })
	if s.nspans >= s.maxSpans {
		s.dropped++
		return
	}
	t.spans[sid] = r
	s.nspans++
}

// evict drops the oldest traces while over says so.
func (s *store) evict(over func() bool) {
	for len(s.order) > 0 && over() {
		n := len(s.traces[s.order[0]].spans)
		s.dropped += n
		s.nspans -= n
		delete(s.traces, s.order[0])
		s.order = s.order[1:]
	}
}

// sized returns b, or zeros when its length is wrong.
func sized(b []byte, n int) []byte {
	if len(b) != n {
		return make([]byte, n)
	}
	return b
}

func (s *store) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *store) droppedSpans() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

func (s *store) raw(id TraceID) []rawSpan {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.traces[id]
	if t == nil {
		return nil
	}
	out := make([]rawSpan, 0, len(t.spans))
	for _, r := range t.spans {
		out = append(out, r)
	}
	return out
}

func (s *store) trace(id TraceID) Trace { return newTrace(id, s.raw(id)) }

func (s *store) list() []Summary {
	s.mu.Lock()
	order := slices.Clone(s.order)
	s.mu.Unlock()
	out := make([]Summary, 0, len(order))
	for _, id := range order {
		t := s.trace(id)
		if len(t.Spans) > 0 {
			out = append(out, Summary{ID: id, Root: t.rootName(), Spans: len(t.Spans), Start: t.Spans[0].Start})
		}
	}
	return out
}

func newTrace(id TraceID, raw []rawSpan) Trace {
	t := Trace{ID: id, Spans: make([]Span, 0, len(raw))}
	for _, r := range raw {
		t.Spans = append(t.Spans, r.decoded())
	}
	slices.SortFunc(t.Spans, func(a, b Span) int {
		return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End), cmp.Compare(a.Process(), b.Process()),
			cmp.Compare(a.Name, b.Name), slices.Compare(a.ID[:], b.ID[:]))
	})
	return t
}

func (r rawSpan) decoded() Span {
	sp := Span{
		ID: SpanID(sized(r.span.GetSpanId(), 8)), Parent: SpanID(sized(r.span.GetParentSpanId(), 8)),
		Name: r.span.GetName(), Start: unixTime(r.span.GetStartTimeUnixNano()), End: unixTime(r.span.GetEndTimeUnixNano()),
		Attributes: attributes(r.span.GetAttributes()), Resource: attributes(r.res.GetAttributes()),
		Failed: r.span.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, Message: r.span.GetStatus().GetMessage(),
		Kind: r.span.GetKind().String(),
	}
	for _, e := range r.span.GetEvents() {
		sp.Events = append(sp.Events, Event{Name: e.GetName(), Time: unixTime(e.GetTimeUnixNano()), Attributes: attributes(e.GetAttributes())})
	}
	for _, l := range r.span.GetLinks() {
		sp.Links = append(sp.Links, TraceID(sized(l.GetTraceId(), 16)))
	}
	return sp
}

func unixTime(ns uint64) time.Time { return time.Unix(0, int64(ns)).UTC() }

func attributes(kvs []*commonpb.KeyValue) []Attribute {
	out := make([]Attribute, 0, len(kvs))
	for _, kv := range kvs {
		out = append(out, Attribute{kv.GetKey(), anyValue(kv.GetValue())})
	}
	return out
}

// anyValue returns a string, bool, int64, float64, or a list of these; other
// kinds as text.
func anyValue(v *commonpb.AnyValue) any {
	switch v := v.GetValue().(type) {
	case nil:
		return nil
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	case *commonpb.AnyValue_ArrayValue:
		var list []any
		for _, e := range v.ArrayValue.GetValues() {
			if _, nested := e.GetValue().(*commonpb.AnyValue_ArrayValue); !nested {
				list = append(list, anyValue(e))
			}
		}
		return list
	}
	return v.String()
}
