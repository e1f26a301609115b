package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestDetails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, c := Start(r.ctx(), r.options())
	_, sp := c.Stage(ctx, WireTransfer)
	d := sp.Detail("read", AttrSource.Int(3))
	r.advance(time.Second)
	d.Event(EventRetry, AttrSource.Int(4))
	d.AddBytes(5)
	d.Set(AttrRetries.Int(1))
	r.advance(time.Second)
	d.End(errors.New("reset"))
	d.End(nil)
	late := sp.Detail("read")
	r.advance(time.Second)
	sp.End(nil)
	late.End(nil)
	c.Finish(OutcomeApplied, nil)

	stage, read := r.span(t, "wire_transfer"), r.span(t, "read")
	if read.Parent.SpanID() != stage.SpanContext.SpanID() {
		t.Error("the detail is not a child of its stage")
	}
	if took := read.EndTime.Sub(read.StartTime); took != 2*time.Second || !read.StartTime.Equal(stage.StartTime) {
		t.Errorf("the detail began at %v and took %v", read.StartTime, took)
	}
	if read.Status.Code != codes.Error || len(read.Events) != 1 || read.Events[0].Time.Sub(read.StartTime) != time.Second {
		t.Errorf("status %v, events %v", read.Status, read.Events)
	}
	if got := r.only(t).Bytes; got != 5 {
		t.Errorf("%d bytes in the record", got)
	}
}

// TestDetailsAreBounded reads from 1,000 sources, of which three fail and some
// are slow: these are shown, the others are one span.
func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	const sources, shown = 1000, 8
	r := newRig(t)
	o := r.options()
	o.MaxDetails = shown
	ctx, c := Start(r.ctx(), o)
	_, sp := c.Stage(ctx, WireTransfer)
	for i := range sources {
		d := sp.Detail("read", AttrSource.Int(i))
		d.AddBytes(10)
		var err error
		switch {
		case i%400 == 0: // 0, 400, 800: fast, but failed
			err = fmt.Errorf("source %d", i)
		case i >= sources-5: // 995…999: slow
			r.advance(time.Second)
		}
		r.advance(time.Millisecond)
		d.End(err)
	}
	sp.End(nil)
	c.Finish(OutcomeApplied, nil)

	var got []int64
	for _, s := range r.spans.GetSpans() {
		if s.Name == "read" {
			got = append(got, value(s, AttrSource).AsInt64())
		}
	}
	if want := []int64{0, 400, 800, 995, 996, 997, 998, 999}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("sources shown: %v, want %v", got, want)
	}
	rest := r.span(t, "read (others)")
	if n, b := value(rest, attrCount).AsInt64(), value(rest, AttrBytes).AsInt64(); n != sources-shown || b != 10*(sources-shown) {
		t.Errorf("the aggregate stands for %d details and %d bytes", n, b)
	}
	if busy := value(rest, attrBusy).AsFloat64(); busy != sources-shown {
		t.Errorf("busy for %v ms, want %d", busy, sources-shown)
	}
	if got := r.only(t).Bytes; got != 10*sources {
		t.Errorf("%d bytes in the record", got)
	}
}

func value(s tracetest.SpanStub, key attribute.Key) attribute.Value {
	for _, kv := range s.Attributes {
		if kv.Key == key {
			return kv.Value
		}
	}
	return attribute.Value{}
}

func BenchmarkDisabled(b *testing.B) {
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		useNil(ctx, FromContext(ctx))
	}
}

// traced runs bench with a recorder alone, and with spans that are sampled and
// batched for an exporter that takes no time.
func traced(b *testing.B, bench func(*testing.B, CycleOptions)) {
	b.Run("record", func(b *testing.B) { bench(b, CycleOptions{Getenv: env()}) })
	b.Run("record+spans", func(b *testing.B) {
		tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(&discard{}), sdktrace.WithIDGenerator(idGenerator{}))
		defer func() { _ = tp.Shutdown(context.Background()) }()
		bench(b, CycleOptions{Getenv: env(), Tracer: tp.Tracer("bench")})
	})
}

type discard struct{}

func (*discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (*discard) Shutdown(context.Context) error                             { return nil }

func BenchmarkStageSpan(b *testing.B) {
	traced(b, func(b *testing.B, o CycleOptions) {
		ctx, c := Start(b.Context(), o)
		b.ReportAllocs()
		for b.Loop() {
			_, sp := c.Stage(ctx, WireTransfer)
			sp.AddBytes(1)
			sp.End(nil)
		}
	})
}

func BenchmarkDetail(b *testing.B) {
	traced(b, func(b *testing.B, o CycleOptions) {
		ctx, c := Start(b.Context(), o)
		_, sp := c.Stage(ctx, WireTransfer)
		b.ReportAllocs()
		for b.Loop() {
			d := sp.Detail("read", AttrSource.Int(3), AttrTransport.String("tcp"))
			d.AddBytes(1)
			d.End(nil)
		}
		sp.End(nil)
	})
}

// BenchmarkCycle is a whole refit: ten stages, two phases, 32 reads, one line.
func BenchmarkCycle(b *testing.B) {
	traced(b, func(b *testing.B, o CycleOptions) {
		o.Lines = io.Discard
		b.ReportAllocs()
		for b.Loop() {
			ctx, c := Start(b.Context(), o)
			ctx, phase := c.Phase(ctx, PhaseStage)
			for _, s := range Stages() {
				_, sp := c.Stage(ctx, s)
				for range 32 * boolInt(s == WireTransfer) {
					sp.Detail("read", AttrSource.Int(3)).End(nil)
				}
				sp.End(nil)
			}
			phase.End(nil)
			c.Finish(OutcomeApplied, nil)
		}
	})
}
