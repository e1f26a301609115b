package tracing

import (
	"testing"
	"time"
)

func TestIdleStageCountsOnlyItsWork(t *testing.T) {
	t.Parallel()
	rig := newRig(t)
	ctx, c := Start(t.Context(), rig.options())
	step := rig.advance

	_, sp := c.StageIdle(ctx, ReceiveSync)
	step(10 * time.Millisecond)
	a := sp.Work()
	step(5 * time.Millisecond)
	b := sp.Work() // overlaps a
	step(5 * time.Millisecond)
	a()
	step(5 * time.Millisecond)
	b()
	b() // twice is once
	step(20 * time.Millisecond)
	sp.End(nil)

	r := c.Finish(OutcomeApplied, nil)
	if got := r.Stages.Get(ReceiveSync); got.DurationMs != 15 || got.Count != 1 || got.Status != StatusOK {
		t.Fatalf("stage is %+v, want 15 ms of work in one span", got)
	}
	if r.UnattributedMs != 30 || r.E2EMs != 45 {
		t.Fatalf("e2e %v ms, unattributed %v ms; want 45 and 30", r.E2EMs, r.UnattributedMs)
	}
	span := rig.span(t, "receive_sync")
	if busy := value(span, AttrBusy).AsFloat64(); busy != 15 || span.EndTime.Sub(span.StartTime) != 45*time.Millisecond {
		t.Errorf("the span took %v and says that it was busy for %v ms", span.EndTime.Sub(span.StartTime), busy)
	}
	sp.Work()() // after the end: nothing
	var none *Span
	none.Work()()
}
