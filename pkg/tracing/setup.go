package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// Scope names the instrumentation in spans and metrics.
const Scope = "github.com/drydock-rl/drydock"

// DefaultShutdownTimeout bounds how long Shutdown waits for collectors.
const DefaultShutdownTimeout = 3 * time.Second

// localDelay is how long spans of local exporters are gathered: a killed process takes no more than these with it.
const localDelay = 200 * time.Millisecond

// deadTimeout bounds it when the collector did not answer the last time.
const deadTimeout = 200 * time.Millisecond

// SetupConfig describes one process to OpenTelemetry. What the OTEL_ variables
// say goes before it, as their specification wants.
type SetupConfig struct {
	Service         string                   // service.name; required
	Instance        string                   // service.instance.id: which of several equal processes; default host:pid
	Version         string                   // service.version; default none
	Attributes      []attribute.KeyValue     // of the resource
	Logger          *slog.Logger             // hears once of a collector that does not answer; default: none
	Exporters       []sdktrace.SpanExporter  // get spans in batches, as OTEL_BSP_ variables say; default 5 s apart
	Local           []sdktrace.SpanExporter  // get them within a fifth of a second: of this host, such as files
	Console         io.Writer                // of the console exporters; default os.Stdout
	Getenv          func(name string) string // default os.Getenv; the OTLP exporters always read the process's own environment
	ShutdownTimeout time.Duration            // default DefaultShutdownTimeout
}

func (c SetupConfig) withDefaults() SetupConfig {
	if c.Instance == "" {
		host, _ := os.Hostname()
		c.Instance = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Console == nil {
		c.Console = os.Stdout
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = DefaultShutdownTimeout
	}
	return c
}

func (c *SetupConfig) validate() error {
	if c.Service == "" {
		return errors.New("check telemetry configuration: Service is empty, expected a service.name")
	}
	return nil
}

// Telemetry holds the providers of one process. They are never made global.
type Telemetry struct {
	TracerProvider trace.TracerProvider // makes no spans, but propagates, when nothing exports
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator // W3C trace context and baggage
	Prometheus     http.Handler                  // answers a scrape

	timeout time.Duration
	outages []*outage
	closers []func(context.Context) error
	flushes []func(context.Context) error
}

// Setup makes the providers of a process. Exporters follow OTEL_TRACES_EXPORTER,
// OTEL_METRICS_EXPORTER and OTEL_EXPORTER_OTLP_*; with none of these set, spans
// go only to c.Exporters and c.Local, and without those nowhere. It never waits for a
// collector. It fails on settings that make no sense.
func Setup(ctx context.Context, c SetupConfig) (*Telemetry, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	res, err := c.resource(ctx)
	if err != nil {
		return nil, fmt.Errorf("describe this process to telemetry: %w", err)
	}
	t := &Telemetry{
		TracerProvider: tracenoop.NewTracerProvider(),
		Propagator:     propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
		timeout:        c.ShutdownTimeout,
	}
	disabled := strings.EqualFold(strings.TrimSpace(lookup(c.Getenv, "OTEL_SDK_DISABLED")), "true")
	if err = t.setMetrics(ctx, c, res, disabled); err == nil && !disabled {
		err = t.setTraces(ctx, c, res)
	}
	if err != nil {
		return nil, errors.Join(err, t.Shutdown(ctx))
	}
	return t, nil
}

func (c *SetupConfig) resource(ctx context.Context) (*resource.Resource, error) {
	attrs := append([]attribute.KeyValue{semconv.ServiceName(c.Service), semconv.ServiceInstanceID(c.Instance)}, c.Attributes...)
	if c.Version != "" {
		attrs = append(attrs, semconv.ServiceVersion(c.Version))
	}
	return resource.New(ctx, resource.WithHost(), resource.WithTelemetrySDK(), resource.WithAttributes(attrs...),
		resource.WithAttributes(semconv.ProcessPID(os.Getpid())), resource.WithFromEnv())
}

func (t *Telemetry) setTraces(ctx context.Context, c SetupConfig, res *resource.Resource) error {
	sampler, err := samplerFrom(c.Getenv)
	if err != nil {
		return err
	}
	exporters := c.Exporters
	for _, name := range signalTraces.exporters(c.Getenv) {
		e, err := spanExporter(ctx, name, c.Getenv, c.Console)
		if err != nil {
			return fmt.Errorf("set up traces: %w", err)
		}
		exporters = append(exporters[:len(exporters):len(exporters)], e)
	}
	if len(exporters)+len(c.Local) == 0 {
		return nil
	}
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(res), sdktrace.WithIDGenerator(idGenerator{}), sdktrace.WithSampler(versionSampler{sampler}),
	}
	for _, e := range exporters {
		opts = append(opts, sdktrace.WithBatcher(quietSpans{e, t.outage("traces", c.Logger)}))
	}
	for _, e := range c.Local {
		opts = append(opts, sdktrace.WithBatcher(quietSpans{e, t.outage("traces of this host", c.Logger)}, sdktrace.WithBatchTimeout(localDelay)))
	}
	tp := sdktrace.NewTracerProvider(opts...)
	t.TracerProvider = tp
	t.closers = append(t.closers, tp.Shutdown)
	t.flushes = append(t.flushes, tp.ForceFlush)
	return nil
}

func (t *Telemetry) setMetrics(ctx context.Context, c SetupConfig, res *resource.Resource, disabled bool) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := otelprom.New(otelprom.WithRegisterer(reg), otelprom.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("set up the Prometheus endpoint: %w", err)
	}
	t.Prometheus = promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, EnableOpenMetrics: true, MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
	opts := []sdkmetric.Option{sdkmetric.WithResource(res), sdkmetric.WithReader(reader)}
	for _, name := range signalMetrics.exporters(c.Getenv) {
		if name == exportPrometheus || disabled {
			continue
		}
		e, err := metricExporter(ctx, name, c.Getenv, c.Console)
		if err != nil {
			return fmt.Errorf("set up metrics: %w", err)
		}
		opts = append(opts, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(quietMetrics{e, t.outage("metrics", c.Logger)})))
	}
	mp := sdkmetric.NewMeterProvider(opts...)
	t.MeterProvider = mp
	t.closers = append(t.closers, mp.Shutdown)
	t.flushes = append(t.flushes, mp.ForceFlush)
	return nil
}

func (t *Telemetry) outage(what string, log *slog.Logger) *outage {
	o := newOutage(what, log)
	t.outages = append(t.outages, o)
	return o
}

// Tracer returns the tracer of Drydock's own spans.
func (t *Telemetry) Tracer() trace.Tracer { return t.TracerProvider.Tracer(Scope) }

// Flush delivers what has ended so far; an error means that ctx ended first.
func (t *Telemetry) Flush(ctx context.Context) error {
	var errs []error
	for _, f := range t.flushes {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// Shutdown delivers what is left and stops. It gives up after ShutdownTimeout,
// and after a fifth of a second when the collector was not there the last time;
// what is undelivered then is dropped, and that is no error. It is idempotent.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	closers := t.closers
	t.closers = nil
	patience := time.AfterFunc(t.patience(), t.giveUp)
	defer patience.Stop()
	defer t.giveUp()
	// Beyond its patience a closer has only to stop, which takes no collector.
	ctx, cancel := context.WithTimeout(ctx, t.timeout+time.Second)
	defer cancel()
	errs := make([]error, len(closers))
	var wg sync.WaitGroup
	for i, c := range closers {
		wg.Go(func() { errs[i] = c(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (t *Telemetry) patience() time.Duration {
	for _, o := range t.outages {
		if o.isDown() {
			return min(t.timeout, deadTimeout)
		}
	}
	return t.timeout
}

func (t *Telemetry) giveUp() {
	for _, o := range t.outages {
		o.giveUp()
	}
}
