package tracing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

func (r *rig) ctx() context.Context { return context.Background() }

func attr(key string, value any) attribute.KeyValue {
	if n, ok := value.(int); ok {
		return attribute.Int(key, n)
	}
	return attribute.String(key, fmt.Sprint(value))
}

func TestOuterCycleWins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	outer, c := Start(r.ctx(), r.options())
	inner, none := Start(outer, r.options())
	if none != nil || inner != outer {
		t.Fatal("a second cycle started inside an active one")
	}
	_, sp := FromContext(inner).Stage(inner, ReceiveSync)
	r.advance(time.Second)
	sp.End(nil)
	none.Finish(OutcomeApplied, nil)
	c.Finish(OutcomeApplied, nil)
	if got := r.only(t).Stages.Get(ReceiveSync); got.Count != 1 {
		t.Errorf("the outer cycle did not hear the stage: %+v", got)
	}
}

func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, c := Start(r.ctx(), r.options(EnvTiming, "0", EnvStdout, "1"))
	if c != nil || ctx != r.ctx() {
		t.Fatal("a cycle started although cycles are off")
	}
	useNil(ctx, c)
	if r.lines.Len()+r.stdout.Len() > 0 || len(r.names()) > 0 {
		t.Errorf("something was reported: %q %q %v", &r.lines, &r.stdout, r.names())
	}
}

// useNil calls everything that a layer may call without a cycle.
func useNil(ctx context.Context, c *Cycle) {
	ctx = c.Activate(ctx)
	ctx, phase := c.Phase(ctx, PhaseStage)
	ctx, sp := c.Stage(ctx, WireTransfer)
	d := sp.Detail("read", AttrSource.Int(3), AttrTransport.String("tcp"))
	d.Set(AttrSegments.Int(17))
	d.AddBytes(4)
	d.Event(EventRetry, AttrSource.Int(4))
	d.End(nil)
	sp.Set(AttrSegments.Int(17), AttrTransport.String("tcp"))
	sp.AddBytes(4)
	sp.Event(EventBreaker)
	_, idle := c.StageIdle(ctx, ReceiveSync)
	idle.Work()()
	sp.End(nil)
	phase.End(nil)
	FromContext(ctx).NotApplicable(PostInstall, "none")
	c.Combined(PostInstall, Installation)
	c.AddDuration(PostInstall, time.Second, nil)
	c.SetCold(true)
	c.SetSizes(Sizes{})
	_ = c.Err()
	_ = c.SpanContext()
	c.Finish(OutcomeApplied, nil)
}

func TestDisabledAllocatesNothing(t *testing.T) {
	ctx := context.WithValue(t.Context(), rootKey{}, trace.SpanID{1})
	if n := testing.AllocsPerRun(100, func() { useNil(ctx, FromContext(ctx)) }); n != 0 {
		t.Errorf("%v allocations without a cycle, want 0", n)
	}
}

func TestConcurrentSpansAreWallTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, c := Start(r.ctx(), r.options())
	_, a := c.Stage(ctx, WireTransfer)
	r.advance(time.Second)
	_, b := c.Stage(ctx, WireTransfer)
	r.advance(time.Second)
	a.End(nil)
	_, other := c.Stage(ctx, Transformation)
	r.advance(time.Second)
	b.End(nil)
	r.advance(time.Second)
	other.End(nil)
	r.advance(time.Second)
	rec := c.Finish(OutcomeApplied, nil)
	if got := rec.Stages.Get(WireTransfer); got.DurationMs != 3000 || got.Count != 2 {
		t.Errorf("wire_transfer: %+v, want 3000 ms by 2 spans", got)
	}
	if rec.E2EMs != 5000 || rec.UnattributedMs != 1000 {
		t.Errorf("e2e %v, unattributed %v, want 5000 and 1000: overlapping stages explain a moment once", rec.E2EMs, rec.UnattributedMs)
	}
}

// TestUnion compares the counter with the sum over a timeline.
func TestUnion(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var u union
		base := time.Unix(0, 0)
		covered, first, last, open := 0, -1, 0, 0
		for tick := range 200 {
			now := base.Add(time.Duration(tick) * time.Second)
			switch {
			case rnd.IntN(3) == 0:
				u.begin(now)
				open++
				if first < 0 {
					first = tick
				}
			case open > 0 && rnd.IntN(2) == 0:
				u.end(now)
				open--
				last = tick
			}
			if got := u.at(now); got != time.Duration(covered)*time.Second {
				t.Fatalf("seed %d tick %d: %v, want %ds", seed, tick, got, covered)
			}
			if open > 0 {
				covered++
			}
		}
		for ; open > 0; open-- {
			u.end(base.Add(200 * time.Second))
			last = 200
		}
		if got, want := u.gaps(), time.Duration(last-max(first, 0)-covered)*time.Second; last > 0 && got != want {
			t.Fatalf("seed %d: gaps %v, want %v", seed, got, want)
		}
	}
}

func TestUnionBookedLate(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var u union
	u.begin(at(5))
	u.end(at(8))
	u.begin(at(0)) // read the clock first, got the lock last
	u.end(at(10))
	if got := u.at(at(10)); got != 5*time.Second {
		t.Errorf("%v, want 5s: no moment counts twice", got)
	}
}

func TestPauseIsAGap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, c := Start(r.ctx(), r.options())
	sctx, stage := c.Phase(ctx, PhaseStage)
	_, sp := c.Stage(sctx, WireTransfer)
	r.advance(2 * time.Second)
	sp.End(nil)
	stage.End(nil)
	r.advance(30 * time.Second) // the caller drains its engine
	actx, apply := c.Phase(c.Activate(t.Context()), PhaseApply)
	if FromContext(actx) != c {
		t.Fatal("apply does not know its cycle")
	}
	_, sp = FromContext(actx).Stage(actx, Installation)
	r.advance(time.Second)
	sp.End(nil)
	apply.End(nil)
	rec := c.Finish(OutcomeApplied, nil)
	if rec.Drydock.PauseMs != 30000 || rec.E2EMs != 33000 || rec.UnattributedMs != 30000 {
		t.Errorf("pause %v, e2e %v, unattributed %v", rec.Drydock.PauseMs, rec.E2EMs, rec.UnattributedMs)
	}
	root, st, ap := r.span(t, "refit"), r.span(t, PhaseStage), r.span(t, PhaseApply)
	if st.Parent.SpanID() != root.SpanContext.SpanID() || ap.Parent.SpanID() != root.SpanContext.SpanID() {
		t.Error("the phases are not children of the cycle's span")
	}
	if gap := ap.StartTime.Sub(st.EndTime); gap != 30*time.Second {
		t.Errorf("gap of %v in the trace, want 30s", gap)
	}
	if inst := r.span(t, "installation"); inst.Parent.SpanID() != ap.SpanContext.SpanID() {
		t.Error("installation is not a child of apply")
	}
}

func TestFinishOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, c := Start(r.ctx(), r.options(EnvStdout, "1"))
	var wg sync.WaitGroup
	records := make([]*Record, 8)
	for i := range records {
		wg.Go(func() { records[i] = c.Finish(OutcomeFailed, fmt.Errorf("caller %d", i)) })
	}
	wg.Wait()
	for _, rec := range records {
		if rec != records[0] {
			t.Fatal("two callers got two records")
		}
	}
	r.only(t)
	if r.stdout.String() != r.lines.String() {
		t.Errorf("stdout has %q, lines %q", &r.stdout, &r.lines)
	}
	if s := r.span(t, "refit"); s.Status.Code != codes.Error {
		t.Errorf("status of the span %v", s.Status)
	}
}

func TestStdoutByVariable(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"": false, "0": false, "1": true, "yes": true} {
		r := newRig(t)
		_, c := Start(r.ctx(), r.options(EnvStdout, value))
		c.Finish(OutcomeApplied, nil)
		if got := r.stdout.Len() > 0; got != want {
			t.Errorf("%s=%q: on stdout %v, want %v", EnvStdout, value, got, want)
		}
	}
}

func TestPanicStillReports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	func() {
		defer func() { _ = recover() }()
		ctx, c := Start(r.ctx(), r.options())
		defer c.Finish(OutcomeAbandoned, nil)
		ctx, phase := c.Phase(ctx, PhaseStage)
		_, sp := c.Stage(ctx, WireTransfer)
		r.advance(time.Second)
		if sp != nil && phase != nil {
			panic("out of luck")
		}
	}()
	rec := r.only(t)
	if rec.Drydock.Outcome != OutcomeAbandoned || !strings.Contains(rec.Drydock.Error, ErrAbandoned.Error()) {
		t.Errorf("%+v", rec.Drydock)
	}
	if st := rec.Stages.Get(WireTransfer); st.Status != StatusError || st.DurationMs != 1000 {
		t.Errorf("wire_transfer: %+v", st)
	}
	for _, name := range []string{"refit", PhaseStage, "wire_transfer"} {
		if s := r.span(t, name); s.Status.Code != codes.Error {
			t.Errorf("span %s: %v", name, s.Status)
		}
	}
}

func TestNothingAfterFinish(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, c := Start(r.ctx(), r.options())
	_, early := c.Stage(ctx, WireTransfer)
	c.Finish(OutcomeReleased, nil)
	_, late := c.Stage(ctx, WireTransfer)
	if late != nil {
		t.Error("a stage opened in a finished cycle")
	}
	early.End(nil)
	early.End(errors.New("again"))
	if n := r.only(t).Stages.Get(WireTransfer).Count; n != 1 {
		t.Errorf("%d spans", n)
	}
}

func TestMisuseIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		use  func(context.Context, *Cycle)
		want string
	}{
		"unknown stage":    {func(ctx context.Context, c *Cycle) { _, sp := c.Stage(ctx, 11); sp.End(nil) }, "unknown refit stage Stage(11)"},
		"zero stage":       {func(ctx context.Context, c *Cycle) { c.AddDuration(0, 1, nil) }, "unknown refit stage Stage(0)"},
		"marked unknown":   {func(_ context.Context, c *Cycle) { c.NotApplicable(99, "") }, "unknown refit stage"},
		"combined unknown": {func(_ context.Context, c *Cycle) { c.Combined(WireTransfer, 99) }, "unknown refit stage"},
		"negative":         {func(_ context.Context, c *Cycle) { c.AddDuration(WireTransfer, -1, nil) }, "negative"},
		"negative bytes":   {func(ctx context.Context, c *Cycle) { _, sp := c.Stage(ctx, WireTransfer); sp.AddBytes(-1) }, "negative"},
		"both": {func(ctx context.Context, c *Cycle) {
			_, sp := c.Stage(ctx, PostInstall)
			sp.End(nil)
			c.NotApplicable(PostInstall, "")
		}, "has measured spans"},
	} {
		r := newRig(t)
		ctx, c := Start(r.ctx(), r.options())
		test.use(ctx, c)
		if err := c.Err(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		c.Finish(OutcomeApplied, nil)
		if f := r.only(t).Drydock.Faults; len(f) != 1 {
			t.Errorf("%s: faults in the record: %q", name, f)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, o := range []CycleOptions{{TP: Parallel{4, 4}}, {TP: Parallel{-1, 2}}, {EP: Parallel{0, -1}}, {MaxDetails: -1}} {
		_, c := Start(t.Context(), o)
		if c.Err() == nil {
			t.Errorf("%+v is taken", o)
		}
		c.Finish(OutcomeApplied, nil)
	}
}

type classed struct{ error }

func (classed) ErrorClass() string { return "lease_lost" }

func TestErrorType(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"lease_lost":          fmt.Errorf("stage: %w", classed{errors.New("gone")}),
		"cancelled":           fmt.Errorf("stage: %w", context.Canceled),
		"deadline":            fmt.Errorf("stage: %w", context.DeadlineExceeded),
		"abandoned":           ErrAbandoned,
		"*errors.errorString": fmt.Errorf("a: %w", errors.New("b")),
	} {
		if got := errorType(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestRace has many goroutines use one cycle at once, for the race detector.
func TestRace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, c := Start(r.ctx(), r.options())
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 20 {
				_, sp := c.Stage(ctx, Stages()[i%nstages])
				sp.Set(AttrSource.Int(i))
				d := sp.Detail("read")
				d.AddBytes(1)
				r.advance(time.Millisecond)
				d.End(nil)
				sp.End(nil)
			}
		})
	}
	wg.Wait()
	rec := c.Finish(OutcomeApplied, nil)
	total := 0
	for _, st := range rec.Stages {
		total += st.Count
		if st.DurationMs > rec.E2EMs {
			t.Errorf("a stage of %v in a cycle of %v", st.DurationMs, rec.E2EMs)
		}
	}
	if total != 16*20 {
		t.Errorf("%d spans counted, want %d", total, 16*20)
	}
}
