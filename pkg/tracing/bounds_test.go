package tracing

import (
	"context"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// counter is a span processor that only counts.
type counter struct {
	sdktrace.SpanProcessor
	ended atomic.Int64
}

func (*counter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (c *counter) OnEnd(sdktrace.ReadOnlySpan)                   { c.ended.Add(1) }
func (*counter) Shutdown(context.Context) error                  { return nil }
func (*counter) ForceFlush(context.Context) error                { return nil }

// TestThousandRanks has 1,000 publishers and 50 receivers, each of which reads
// from all publishers, and counts the spans of their trace.
func TestThousandRanks(t *testing.T) {
	t.Parallel()
	const publishers, receivers = 1000, 50
	c := &counter{}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(c), sdktrace.WithIDGenerator(idGenerator{}), sdktrace.WithSampler(versionSampler{sdktrace.ParentBased(sdktrace.AlwaysSample())}))
	defer func() { _ = tp.Shutdown(context.Background()) }()

	ctx, root := StartVersionRoot(t.Context(), tp.Tracer(""), nonce, 42, "refit version")
	for rank := range publishers {
		publishLoudly(ctx, tp, rank, publishers)
	}
	root.End()
	if got := c.ended.Swap(0); got > 1+publishers+65*4 {
		t.Errorf("%d spans of %d publishers", got, publishers)
	}
	for range receivers {
		readFromAll(t.Context(), tp.Tracer(""), publishers)
	}
	if got := c.ended.Load(); got != receivers*(14+DefaultMaxDetails) {
		t.Errorf("%d spans of %d receivers, want %d", got, receivers, receivers*(14+DefaultMaxDetails))
	}
}

func publishLoudly(ctx context.Context, tp trace.TracerProvider, rank, world int) {
	ctx, top := tp.Tracer("").Start(ctx, "publish")
	defer top.End()
	below := ForRank(tp, rank, world).Tracer("")
	for _, step := range []string{"encode", "digest", "upload", "commit"} {
		_, span := below.Start(ctx, step)
		span.End()
	}
}

// readFromAll makes 14 spans and those of its reads: the cycle, its phases, ten
// stages, and the reads that are not shown.
func readFromAll(ctx context.Context, tr trace.Tracer, sources int) {
	ctx, cycle := Start(JoinVersion(ctx, nonce, 42), CycleOptions{Tracer: tr, Getenv: env()})
	for _, phase := range []string{PhaseStage, PhaseApply} {
		pctx, open := cycle.Phase(ctx, phase)
		for _, s := range Stages() {
			if (s < Installation) != (phase == PhaseStage) {
				continue
			}
			_, sp := cycle.Stage(pctx, s)
			for rank := range sources * boolInt(s == WireTransfer) {
				sp.Detail("read", AttrSource.Int(rank)).End(nil)
			}
			sp.End(nil)
		}
		open.End(nil)
	}
	cycle.Finish(OutcomeApplied, nil)
}
