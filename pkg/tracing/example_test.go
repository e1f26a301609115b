package tracing_test

import (
	"context"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/tracing"
)

// A layer below knows nothing of the cycle but what the context says.
func read(ctx context.Context, now *time.Time) {
	_, span := tracing.FromContext(ctx).Stage(ctx, tracing.WireTransfer)
	*now = now.Add(1500 * time.Millisecond)
	span.AddBytes(1 << 20)
	span.End(nil)
}

func ExampleStart() {
	now := time.Unix(0, 0)
	ctx, cycle := tracing.Start(context.Background(), tracing.CycleOptions{
		Version: 42,
		Now:     func() time.Time { return now },
		Getenv:  func(string) string { return "" },
	})
	defer cycle.Finish(tracing.OutcomeAbandoned, nil) // only if nothing below has finished it

	stageCtx, phase := cycle.Phase(ctx, tracing.PhaseStage)
	read(stageCtx, &now)
	phase.End(nil)

	now = now.Add(time.Second) // the caller's own time

	_, phase = cycle.Phase(cycle.Activate(context.Background()), tracing.PhaseApply)
	cycle.NotApplicable(tracing.PostInstall, "nothing to clean up")
	phase.End(nil)

	r := cycle.Finish(tracing.OutcomeApplied, nil)
	fmt.Println("wire_transfer:", r.Stages.Get(tracing.WireTransfer).DurationMs, "ms,", r.Bytes, "bytes")
	fmt.Println("post_install:", r.Stages.Get(tracing.PostInstall).Status)
	fmt.Println("e2e:", r.E2EMs, "ms, pause:", r.Drydock.PauseMs, "ms")
	// Output:
	// wire_transfer: 1500 ms, 1048576 bytes
	// post_install: not_applicable
	// e2e: 2500 ms, pause: 1000 ms
}

// Every process computes the trace of a version by itself.
func ExampleVersionContext() {
	var nonce [16]byte // in truth from the run record
	sc := tracing.VersionContext(nonce, 42)
	fmt.Println(sc.TraceID(), sc.SpanID())
	// Output:
	// 00a4d717268778dde0c5bf058eefa402 eb2b63caedeb8e47
}
