package refit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/tracing"
)

// pass lets time go by, for tests of how time is counted.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the test ended while time passed")
	}
}

// TestTheRecordSpansStageToInstall lets the caller take its time between the two calls.
func TestTheRecordSpansStageToInstall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r, _, lines := w.trapped(nil)
	begin := time.Now()
	s, err := r.Stage(w.ctx, w.publish(1))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(lines.of(t, 1)); n != 0 {
		t.Fatalf("%d records of a cycle that has not ended", n)
	}
	const pause = 60 * time.Millisecond
	pass(t, pause)
	if err := r.Apply(w.ctx, s); err != nil {
		t.Fatal(err)
	}
	took := tracing.ToMillis(time.Since(begin))
	rec := lines.once(t, 1, tracing.OutcomeApplied)
	if d := rec.Drydock; d.PauseMs < tracing.ToMillis(pause) || rec.E2EMs < d.PauseMs || rec.E2EMs > took {
		t.Errorf("pause %v ms, end to end %v ms, by the test's clock %v ms and a pause of %v", d.PauseMs, rec.E2EMs, took, pause)
	}
	if rec.UnattributedMs < rec.Drydock.PauseMs {
		t.Errorf("%v ms are in no stage, although the caller paused for %v ms", rec.UnattributedMs, rec.Drydock.PauseMs)
	}
	for _, stage := range tracing.Stages() {
		got := rec.Stages.Get(stage)
		switch {
		case got.Status == tracing.StatusNotRecorded:
			t.Errorf("nothing is said of stage %s", stage)
		case got.DurationMs > rec.E2EMs:
			t.Errorf("stage %s took %v ms of %v", stage, got.DurationMs, rec.E2EMs)
		}
	}
	if d := rec.Drydock; d.NeededBytes != s.Stats().Needed || d.WireBytes != rec.Bytes || d.InstalledBytes != s.Stats().Staged || len(d.Faults) > 0 {
		t.Errorf("bytes of the record %+v, of the stage %+v", d, s.Stats())
	}
}

// TestOneRecordHoweverTheCallerLeaves goes through the ways of a caller, not of the cycle's inside: those are in
// TestFaultAtEachStage.
func TestOneRecordHoweverTheCallerLeaves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		outcome tracing.Outcome
		leave   func(context.Context, *Receiver, *Staged)
	}{
		{"releases", tracing.OutcomeReleased, func(_ context.Context, r *Receiver, s *Staged) { r.Release(s); r.Release(s) }},
		{"panics between the calls", tracing.OutcomeReleased, func(_ context.Context, r *Receiver, s *Staged) {
			defer r.Release(s) // what a careful caller writes
			panic("the caller's own")
		}},
		{"applies, then releases", tracing.OutcomeApplied, func(ctx context.Context, r *Receiver, s *Staged) {
			defer r.Release(s)
			_ = r.Apply(ctx, s)
		}},
		{"applies twice", tracing.OutcomeApplied, func(ctx context.Context, r *Receiver, s *Staged) {
			_ = r.Apply(ctx, s)
			_ = r.Apply(ctx, s)
		}},
		{"releases, then applies", tracing.OutcomeReleased, func(ctx context.Context, r *Receiver, s *Staged) {
			r.Release(s)
			_ = r.Apply(ctx, s)
		}},
		{"applies after it gave up", tracing.OutcomeFailed, func(ctx context.Context, r *Receiver, s *Staged) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_ = r.Apply(ctx, s)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{ranks: 1})
			r, _, lines := w.trapped(nil)
			s, err := r.Stage(w.ctx, w.publish(1))
			if err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() { _ = recover() }()
				c.leave(w.ctx, r, s)
			}()
			lines.once(t, 1, c.outcome)
			w.refit(r, w.publish(2))
			w.serves(r, 2)
		})
	}
}

// TestAnOuterCycleHearsTheStages has an engine run a cycle of its own around Drydock's.
func TestAnOuterCycleHearsTheStages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r, _, inner := w.trapped(nil)
	outer := &recordLines{}
	ctx, cycle := tracing.Start(w.ctx, tracing.CycleOptions{Backend: "engine", Version: 1, Lines: outer})
	s, err := r.Stage(ctx, w.publish(1))
	if err == nil {
		err = r.Apply(ctx, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := len(inner.of(t, 1)) + len(outer.of(t, 1)); n != 0 {
		t.Fatalf("%d records before the outer cycle has ended", n)
	}
	cycle.Finish(tracing.OutcomeApplied, nil)
	rec := outer.once(t, 1, tracing.OutcomeApplied)
	if len(inner.of(t, 1)) != 0 || rec.Backend != "engine" {
		t.Errorf("backend %q, and %d inner records", rec.Backend, len(inner.of(t, 1)))
	}
	if rec.Stages.Get(tracing.WireTransfer).Count == 0 || rec.Stages.Get(tracing.Installation).Count == 0 || rec.Bytes == 0 {
		t.Errorf("the outer cycle did not hear the stages: %+v", rec.Stages)
	}
}

// TestCyclesCanBeSwitchedOff runs alone, since it sets the environment.
func TestCyclesCanBeSwitchedOff(t *testing.T) {
	t.Setenv(tracing.EnvTiming, "0")
	w := newWorld(t, worldOptions{ranks: 2})
	r, _, lines := w.trapped(nil)
	w.refit(r, w.publish(1))
	w.serves(r, 1)
	_ = w.fails(r, w.ranks[0].Key(7), Gone)
	s, err := r.Stage(w.ctx, w.publish(2))
	if err != nil {
		t.Fatal(err)
	}
	r.Release(s)
	for v := range uint64(8) {
		if n := len(lines.of(t, v)); n != 0 {
			t.Errorf("%d records of version %d", n, v)
		}
	}
}

// TestStagesInPiecesCountOnce looks at a pipeline from outside: stages that overlap, also with themselves, are wall time.
func TestStagesInPiecesCountOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 3})
	r, _, lines := w.trapped(func(c *ReceiverConfig) { c.Lanes, c.Workers = 4, 4 })
	w.refit(r, w.publish(1))
	rec := lines.once(t, 1, tracing.OutcomeApplied)
	for _, stage := range []tracing.Stage{tracing.WireTransfer, tracing.ReceiveSync, tracing.Transformation} {
		got := rec.Stages.Get(stage)
		if got.Count != 1 || got.Status != tracing.StatusOK || got.DurationMs > rec.E2EMs {
			t.Errorf("stage %s: %d spans, %s, %v ms of %v", stage, got.Count, got.Status, got.DurationMs, rec.E2EMs)
		}
	}
	if rec.UnattributedMs > rec.E2EMs {
		t.Errorf("%v ms of %v are in no stage", rec.UnattributedMs, rec.E2EMs)
	}
}

// TestTheRecordOfAFailureNamesItsClass wants class and text in the record, and the failed stage marked.
func TestTheRecordOfAFailureNamesItsClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	r, _, lines := w.trapped(func(c *ReceiverConfig) {
		c.Installer = InstallerFunc(func(context.Context, Installation) (Report, error) {
			return Report{}, Unreachable(errors.New("nobody is there"))
		})
	})
	s, err := r.Stage(w.ctx, w.publish(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(w.ctx, s); ClassOf(err) != EngineUnreachable {
		t.Fatal(err)
	}
	rec := lines.once(t, 1, tracing.OutcomeFailed)
	if rec.Drydock.ErrorType != string(EngineUnreachable) || rec.Stages.Get(tracing.Installation).Status != tracing.StatusError ||
		rec.Drydock.InstalledBytes != 0 {
		t.Errorf("error type %q, installation %s, %d bytes installed", rec.Drydock.ErrorType,
			rec.Stages.Get(tracing.Installation).Status, rec.Drydock.InstalledBytes)
	}
}
