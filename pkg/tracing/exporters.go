package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The values of OTEL_{TRACES,METRICS}_EXPORTER that are understood.
const (
	exportNone       = "none"
	exportOTLP       = "otlp"
	exportConsole    = "console"
	exportPrometheus = "prometheus" // metrics only; always there, served by the admin server
)

// signal is one kind of telemetry, as the OTEL_ variables name it.
type signal string

const (
	signalTraces  signal = "TRACES"
	signalMetrics signal = "METRICS"
)

// exporters returns the exporters that the variables ask for. With
// OTEL_x_EXPORTER unset, OTLP is meant where an endpoint is given, else nothing:
// unlike the SDK's default this never knocks at a port of which nobody spoke.
func (s signal) exporters(getenv func(string) string) []string {
	v := strings.TrimSpace(lookup(getenv, "OTEL_"+string(s)+"_EXPORTER"))
	if v == "" {
		if lookup(getenv, "OTEL_EXPORTER_OTLP_ENDPOINT") == "" && lookup(getenv, "OTEL_EXPORTER_OTLP_"+string(s)+"_ENDPOINT") == "" {
			return nil
		}
		v = exportOTLP
	}
	var names []string
	for name := range strings.SplitSeq(v, ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != exportNone && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// grpc says whether the signal goes by gRPC; HTTP with protobuf is the
// specification's default.
func (s signal) grpc(getenv func(string) string) (bool, error) {
	v := lookup(getenv, "OTEL_EXPORTER_OTLP_"+string(s)+"_PROTOCOL")
	if v == "" {
		v = lookup(getenv, "OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch strings.TrimSpace(v) {
	case "", "http/protobuf", "http/json": // the exporter itself chooses the encoding
		return false, nil
	case "grpc":
		return true, nil
	}
	return false, fmt.Errorf("read OTEL_EXPORTER_OTLP_PROTOCOL: %q is not a protocol (expected grpc or http/protobuf)", v)
}

// checkEndpoint refuses what the exporters would replace by their default without
// a word, such as a host without a scheme.
func (s signal) checkEndpoint(getenv func(string) string) error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + string(s) + "_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		v := strings.TrimSpace(lookup(getenv, name))
		if v == "" {
			continue
		}
		if u, err := url.Parse(v); err != nil || u.Host == "" && u.Scheme != "unix" {
			return fmt.Errorf("read %s: %q is not an address (expected http://host:port or https://host:port)", name, v)
		}
	}
	return nil
}

func (s signal) unknown(name string) error {
	return fmt.Errorf("read OTEL_%s_EXPORTER: %q is not an exporter (expected otlp, console or none)", string(s), name)
}

// Retries of one batch: short, since the next batch tells whether the collector
// is back, and since nobody waits for telemetry at shutdown.
const (
	retryFirst = 250 * time.Millisecond
	retryMax   = time.Second
	retryTotal = 4 * time.Second
)

// spanExporter makes the exporter called name. It connects later, by itself.
func spanExporter(ctx context.Context, name string, getenv func(string) string, console io.Writer) (sdktrace.SpanExporter, error) {
	switch name {
	case exportConsole:
		return stdouttrace.New(stdouttrace.WithWriter(console))
	case exportOTLP:
		grpc, err := signalTraces.grpc(getenv)
		switch err = errors.Join(err, signalTraces.checkEndpoint(getenv)); {
		case err != nil:
			return nil, err
		case grpc:
			return otlptracegrpc.New(ctx, otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMax, MaxElapsedTime: retryTotal}))
		}
		return otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMax, MaxElapsedTime: retryTotal}))
	}
	return nil, signalTraces.unknown(name)
}

func metricExporter(ctx context.Context, name string, getenv func(string) string, console io.Writer) (sdkmetric.Exporter, error) {
	switch name {
	case exportConsole:
		return stdoutmetric.New(stdoutmetric.WithWriter(console))
	case exportOTLP:
		grpc, err := signalMetrics.grpc(getenv)
		switch err = errors.Join(err, signalMetrics.checkEndpoint(getenv)); {
		case err != nil:
			return nil, err
		case grpc:
			return otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMax, MaxElapsedTime: retryTotal}))
		}
		return otlpmetrichttp.New(ctx, otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMax, MaxElapsedTime: retryTotal}))
	}
	return nil, signalMetrics.unknown(name)
}
