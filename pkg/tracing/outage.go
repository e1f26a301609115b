package tracing

import (
	"context"
	"log/slog"
	"sync"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// outage stands between an SDK and an exporter. An exporter that fails costs
// nothing but what it would have shown: the failure is said once, not for each
// batch, and said again only after it had worked in between. It also ends
// exports in flight when the process has waited long enough for them.
type outage struct {
	what   string // "traces", "metrics"
	log    *slog.Logger
	ctx    context.Context // done: give up exports in flight
	giveUp context.CancelFunc

	mu   sync.Mutex
	down bool
}

func newOutage(what string, log *slog.Logger) *outage {
	o := &outage{what: what, log: log}
	o.ctx, o.giveUp = context.WithCancel(context.Background())
	return o
}

// run exports with a context that also ends by giveUp, and swallows the error.
func (o *outage) run(ctx context.Context, export func(context.Context) error) {
	if o.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.ctx, cancel)()
	o.note(export(ctx))
}

func (o *outage) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if was := o.down; was != (err != nil) {
		o.down = err != nil
		if o.down {
			o.log.Warn("telemetry not delivered; refits go on without it, and this is said once", "signal", o.what, "error", err)
		} else {
			o.log.Info("telemetry delivered again", "signal", o.what)
		}
	}
}

func (o *outage) isDown() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.down
}

type quietSpans struct {
	sdktrace.SpanExporter
	o *outage
}

func (q quietSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	q.o.run(ctx, func(ctx context.Context) error { return q.SpanExporter.ExportSpans(ctx, spans) })
	return nil
}

type quietMetrics struct {
	sdkmetric.Exporter
	o *outage
}

func (q quietMetrics) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	q.o.run(ctx, func(ctx context.Context) error { return q.Exporter.Export(ctx, rm) })
	return nil
}
