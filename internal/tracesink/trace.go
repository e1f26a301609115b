package tracesink

import (
	"encoding/hex"
	"fmt"
	"time"
)

// TraceID identifies a trace; as text it is 32 hexadecimal digits.
type TraceID [16]byte

// SpanID identifies a span within a trace; as text it is 16 hexadecimal digits.
type SpanID [8]byte

// String returns the hexadecimal form.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// String returns the hexadecimal form.
func (id SpanID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText makes JSON show the hexadecimal form.
func (id TraceID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// ParseTraceID reads 32 hexadecimal digits.
func ParseTraceID(s string) (TraceID, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 16 {
		return TraceID{}, fmt.Errorf("parse trace id %q: expected 32 hexadecimal digits", s)
	}
	return TraceID(b), nil
}

// Trace is what is known of one trace.
type Trace struct {
	ID    TraceID
	Spans []Span // by start time
}

// Span is one span with the process that it came from.
type Span struct {
	ID, Parent SpanID // Parent is zero for a root
	Name, Kind string
	Start, End time.Time
	Attributes []Attribute
	Resource   []Attribute // of the process
	Events     []Event
	Links      []TraceID
	Failed     bool
	Message    string // of the failure
}

// Event is a moment within a span.
type Event struct {
	Name       string
	Time       time.Time
	Attributes []Attribute
}

// Attribute is a key and its value: nil, string, bool, int64, float64 or a list.
type Attribute struct {
	Key   string
	Value any
}

// Attr returns the value of an attribute, nil when there is none.
func (s *Span) Attr(key string) any { return lookup(s.Attributes, key) }

// Service is the process's service.name.
func (s *Span) Service() string { return text(lookup(s.Resource, "service.name")) }

// Instance is the process's service.instance.id.
func (s *Span) Instance() string { return text(lookup(s.Resource, "service.instance.id")) }

// Process names the process that the span came from: service/instance.
func (s *Span) Process() string {
	if in := s.Instance(); in != "" {
		return s.Service() + "/" + in
	}
	return s.Service()
}

// Duration is the time from start to end.
func (s *Span) Duration() time.Duration { return s.End.Sub(s.Start) }

// Named returns the spans called name, by start time.
func (t *Trace) Named(name string) []Span {
	var out []Span
	for i := range t.Spans {
		if t.Spans[i].Name == name {
			out = append(out, t.Spans[i])
		}
	}
	return out
}

// Children returns the spans whose parent is id, by start time.
func (t *Trace) Children(id SpanID) []Span {
	var out []Span
	for i := range t.Spans {
		if t.Spans[i].Parent == id {
			out = append(out, t.Spans[i])
		}
	}
	return out
}

func (t *Trace) rootName() string {
	for i := range t.Spans {
		if t.Spans[i].Parent == (SpanID{}) {
			return t.Spans[i].Name
		}
	}
	return ""
}

func lookup(attrs []Attribute, key string) any {
	for _, a := range attrs {
		if a.Key == key {
			return a.Value
		}
	}
	return nil
}

func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
