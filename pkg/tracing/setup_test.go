package tracing

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestSetupWithoutExporterTracesNothing(t *testing.T) {
	t.Parallel()
	tel, err := Setup(t.Context(), SetupConfig{Service: "test", Getenv: env()})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tel.Tracer().Start(t.Context(), "work")
	if span.IsRecording() || span.SpanContext().IsValid() {
		t.Error("a span is recorded although nothing exports it")
	}
	for range 2 {
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestSetupDescribesTheProcess(t *testing.T) {
	t.Parallel()
	kept := &keep{}
	tel, err := Setup(t.Context(), SetupConfig{
		Service: "drydock-receiver", Instance: "r0", Version: "1.2", Attributes: []attribute.KeyValue{attr("drydock.host", "a")},
		Exporters: []sdktrace.SpanExporter{kept}, Getenv: env(),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tel.Tracer().Start(t.Context(), "work")
	span.End()
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(kept.spans) != 1 {
		t.Fatalf("%d spans delivered", len(kept.spans))
	}
	set := kept.spans[0].Resource.String()
	for _, want := range []string{"service.name=drydock-receiver", "service.instance.id=r0", "service.version=1.2", "drydock.host=a", "process.pid=", "host.name="} {
		if !strings.Contains(set, want) {
			t.Errorf("no %s in the resource %s", want, set)
		}
	}
}

func TestSetupRefuses(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]SetupConfig{
		"Service is empty":                              {},
		`OTEL_TRACES_EXPORTER: "zipkin"`:                {Service: "t", Getenv: env("OTEL_TRACES_EXPORTER", "zipkin")},
		`OTEL_METRICS_EXPORTER: "statsd"`:               {Service: "t", Getenv: env("OTEL_METRICS_EXPORTER", "statsd")},
		`OTEL_TRACES_SAMPLER: "sometimes"`:              {Service: "t", Getenv: env("OTEL_TRACES_SAMPLER", "sometimes")},
		`OTEL_TRACES_SAMPLER_ARG: "2"`:                  {Service: "t", Getenv: env("OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", "2")},
		`OTEL_EXPORTER_OTLP_ENDPOINT: "localhost:4317"`: {Service: "t", Getenv: env("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")},
		`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http:"`:   {Service: "t", Getenv: env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http:")},
		`OTEL_EXPORTER_OTLP_PROTOCOL: "smtp"`:           {Service: "t", Getenv: env("OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "smtp")},
	} {
		if _, err := Setup(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestExportersByVariable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want string
		vars []string
	}{
		{"", nil},
		{"", []string{"OTEL_TRACES_EXPORTER", "none", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://x"}},
		{"otlp", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x"}},
		{"otlp", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://x"}},
		{"", []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://x"}},
		{"console otlp", []string{"OTEL_TRACES_EXPORTER", "Console, otlp"}},
	} {
		if got := strings.Join(signalTraces.exporters(env(test.vars...)), " "); got != test.want {
			t.Errorf("%v: %q, want %q", test.vars, got, test.want)
		}
	}
}

// TestDeadCollector points both signals at a port where nobody listens.
func TestDeadCollector(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		dead := "http://" + l.Addr().String()
		l.Close()
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", dead)
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
		t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
		var log syncBuffer
		tel, err := Setup(t.Context(), SetupConfig{Service: "test", Logger: slog.New(slog.NewTextHandler(&log, nil)), ShutdownTimeout: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for range 10_000 { // far beyond what the queue holds
			_, span := tel.Tracer().Start(t.Context(), "work")
			span.End()
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%s: 10,000 spans took %v: spans wait for the collector", protocol, took)
		}
		begin = time.Now()
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Errorf("%s: %v", protocol, err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%s: shutdown took %v", protocol, took)
		}
		if n := strings.Count(log.String(), "signal=traces"); n > 1 {
			t.Errorf("%s: said %d times:\n%s", protocol, n, log.String())
		}
	}
}

func TestOutageIsSaidOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := newOutage("traces", slog.New(slog.NewTextHandler(&log, nil)))
	defer o.giveUp()
	kept := &keep{}
	q := quietSpans{kept, o}
	for _, fail := range []bool{true, true, true, false, false, true, true} {
		kept.fail = fail
		if err := q.ExportSpans(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if down, up := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=INFO"); down != 2 || up != 1 {
		t.Errorf("%d warnings and %d recoveries:\n%s", down, up, log.String())
	}
}

func TestPrometheusEndpoint(t *testing.T) {
	t.Parallel()
	tel, err := Setup(t.Context(), SetupConfig{Service: "drydock-test", Getenv: env("OTEL_SDK_DISABLED", "true")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tel.Shutdown(context.Background()) }()
	w := httptest.NewRecorder()
	tel.Prometheus.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", http.NoBody))
	for _, want := range []string{"go_goroutines", "process_open_fds", `target_info{`, `service_name="drydock-test"`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in the scrape", want)
		}
	}
}

// keep is an exporter that keeps spans beyond its own shutdown.
type keep struct {
	spans tracetest.SpanStubs
	fail  bool
}

func (k *keep) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	if k.fail {
		return context.DeadlineExceeded
	}
	k.spans = append(k.spans, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return nil
}

func (*keep) Shutdown(context.Context) error { return nil }

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
