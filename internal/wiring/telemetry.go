package wiring

import (
	"context"
	"fmt"
	"log/slog"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/tracesink"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// Traces says where a process keeps its spans, besides where the OTEL_ variables send them.
type Traces struct {
	TraceDir string `help:"Folder where finished spans are kept in files, for refitctl trace --dir; the last 64 MiB of each process. None by default." placeholder:"DIR"`
}

// Telemetry sets up traces and metrics as the OTEL_ variables say. The returned function flushes and ends them.
func Telemetry(ctx context.Context, traces Traces, service, instance string, log *slog.Logger) (*tracing.Telemetry, func(), error) {
	cfg := tracing.SetupConfig{Service: service, Instance: instance, Logger: log}
	if traces.TraceDir != "" {
		files, err := tracesink.Exporter(ctx, tracesink.FilesConfig{Dir: traces.TraceDir, Service: service, Instance: instance})
		if err != nil {
			return nil, nil, cli.WithCode(cli.ExitCapacity, fmt.Errorf("%w (--trace-dir %s)", err, traces.TraceDir))
		}
		cfg.Local = []sdktrace.SpanExporter{files}
	}
	t, err := tracing.Setup(ctx, cfg)
	if err != nil {
		return nil, nil, cli.WithCode(cli.ExitUsage, err)
	}
	return t, func() {
		if err := t.Shutdown(context.WithoutCancel(ctx)); err != nil {
			log.Warn("telemetry not ended cleanly", "error", err)
		}
	}, nil
}
