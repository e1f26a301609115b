package operator

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/tracesink"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// TraceID finds the trace of a version: by computation for the newest run, since the run's record is what it follows
// from, and for an older run by what its commit carries.
func TraceID(ctx context.Context, c *messages.Control, k messages.Key) (tracesink.TraceID, error) {
	run, ok, err := c.Run(ctx)
	if err != nil {
		return tracesink.TraceID{}, fmt.Errorf("find the trace of version %s: %w", k, err)
	}
	if ok && run.Run == k.Run {
		return tracesink.TraceID(tracing.VersionContext(run.Nonce, k.Version).TraceID()), nil
	}
	list, err := c.Versions(ctx)
	if err != nil {
		return tracesink.TraceID{}, fmt.Errorf("find the trace of version %s: %w", k, err)
	}
	i := slices.IndexFunc(list, func(v messages.Committed) bool { return v.Key == k })
	if i < 0 {
		return tracesink.TraceID{}, fmt.Errorf("find the trace of version %s: its run is not the newest, and its commit is gone", k)
	}
	// traceparent: version-trace-parent-flags
	parts := strings.Split(list[i].Headers["traceparent"], "-")
	if len(parts) != 4 {
		return tracesink.TraceID{}, fmt.Errorf("find the trace of version %s: its commit carries none", k)
	}
	return tracesink.ParseTraceID(parts[1])
}

// DrawTrace reads a trace from a collector and draws it as a tree across processes.
func DrawTrace(ctx context.Context, collector string, id tracesink.TraceID, out io.Writer) error {
	t, err := tracesink.Fetch(ctx, collector, id)
	if err != nil {
		return cli.WithCode(cli.ExitUnavailable, fmt.Errorf("%w (the collector is that of refitctl demo --keep, which prints its address; Jaeger and others have a page for the trace)", err))
	}
	return t.Draw(out, tracesink.DrawOptions{})
}
