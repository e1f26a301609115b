package tracing

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// recorder makes a cycle of which spans and metrics are really made, and thrown away.
func recorder(b *testing.B) (context.Context, *Cycle, *Metrics) {
	b.Helper()
	tel, err := Setup(b.Context(), SetupConfig{Service: "test", Exporters: []sdktrace.SpanExporter{&keep{}}, Getenv: env("OTEL_BSP_MAX_QUEUE_SIZE", "1")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	m, err := NewMetrics(tel.MeterProvider)
	if err != nil {
		b.Fatal(err)
	}
	ctx, c := Start(b.Context(), CycleOptions{Tracer: tel.Tracer(), Metrics: m, Getenv: env()})
	return ctx, c, m
}

// BenchmarkPerStage is what the recorder adds to one stage of a cycle: a span with two attributes and the record's sums.
// Without a recorder it is nothing.
func BenchmarkPerStage(b *testing.B) {
	run := func(b *testing.B, ctx context.Context, c *Cycle) {
		b.ReportAllocs()
		for b.Loop() {
			_, sp := c.Stage(ctx, WireTransfer)
			sp.Set(AttrSegments.Int(17), AttrTransport.String("tcp"))
			sp.End(nil)
		}
	}
	b.Run("recorded", func(b *testing.B) {
		ctx, c, _ := recorder(b)
		run(b, ctx, c)
	})
	b.Run("off", func(b *testing.B) { run(b, b.Context(), nil) })
}

// BenchmarkPerBatch is what the recorder adds to one batch of reads, some 16 MiB: its bytes, two pieces of work, and the
// gauge of staging memory up and down. Segments, of which a batch has up to thousands, are not recorded one by one: their
// number is a sum, and costs nothing.
func BenchmarkPerBatch(b *testing.B) {
	run := func(b *testing.B, ctx context.Context, c *Cycle, m *Metrics) {
		_, wire := c.Stage(ctx, WireTransfer)
		_, verify := c.StageIdle(ctx, ReceiveSync)
		_, scatter := c.StageIdle(ctx, Transformation)
		b.ReportAllocs()
		for b.Loop() {
			m.Staging("q", 16<<20)
			wire.AddBytes(16 << 20)
			verify.Work()()
			verify.AddBytes(16 << 20)
			scatter.Work()()
			m.Staging("q", 0)
		}
	}
	b.Run("recorded", func(b *testing.B) {
		ctx, c, m := recorder(b)
		run(b, ctx, c, m)
	})
	b.Run("off", func(b *testing.B) { run(b, b.Context(), nil, nil) })
}
