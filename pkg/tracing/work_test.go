package tracing

import (
	"testing"
	"time"
)

func TestIdleStageCountsOnlyItsWork(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	ctx, c := Start(t.Context(), CycleOptions{Now: func() time.Time { return now }, Getenv: func(string) string { return "" }})
	step := func(d time.Duration) { now = now.Add(d) }

	_, sp := c.StageIdle(ctx, ReceiveSync)
	step(10 * time.Millisecond)
	a := sp.Work()
	step(5 * time.Millisecond)
	b := sp.Work() // overlaps a
	step(5 * time.Millisecond)
	a()
	step(5 * time.Millisecond)
	b()
	step(20 * time.Millisecond)
	sp.End(nil)

	r := c.Finish(OutcomeApplied, nil)
	if got := r.Stages.Get(ReceiveSync); got.DurationMs != 15 || got.Count != 1 || got.Status != StatusOK {
		t.Fatalf("stage is %+v, want 15 ms of work in one span", got)
	}
	if r.UnattributedMs != 30 || r.E2EMs != 45 {
		t.Fatalf("e2e %v ms, unattributed %v ms; want 45 and 30", r.E2EMs, r.UnattributedMs)
	}
	sp.Work()() // after the end: nothing
	var none *Span
	none.Work()()
}
