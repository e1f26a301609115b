package wiring

import (
	"context"
	"log/slog"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// Telemetry sets up traces and metrics as the OTEL_ variables say. The returned function flushes and ends them.
func Telemetry(ctx context.Context, service, instance string, log *slog.Logger) (*tracing.Telemetry, func(), error) {
	t, err := tracing.Setup(ctx, tracing.SetupConfig{Service: service, Instance: instance, Logger: log})
	if err != nil {
		return nil, nil, cli.WithCode(cli.ExitUsage, err)
	}
	return t, func() {
		if err := t.Shutdown(context.WithoutCancel(ctx)); err != nil {
			log.Warn("telemetry not ended cleanly", "error", err)
		}
	}, nil
}
