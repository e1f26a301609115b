package refit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/drydock-rl/drydock/internal/tracesink"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// traced is a world whose processes send their spans to a collector, each through providers of its own.
type traced struct {
	*world
	sink *tracesink.Sink
}

func newTraced(t *testing.T, ranks int) *traced {
	t.Helper()
	return newTracedWorld(t, worldOptions{ranks: ranks})
}

func newTracedWorld(t *testing.T, o worldOptions) *traced {
	t.Helper()
	sink, err := tracesink.Start(tracesink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &traced{newWorld(t, worldOptions{}), sink}
	for rank := range o.ranks {
		w.addRank(rank, o)
		p := w.ranks[rank]
		tel := w.process("drydock-publisher", p.cfg.Name)
		p.cfg.Tracer, p.cfg.Details = tel.Tracer(), tel.Tracer()
	}
	return w
}

// process makes the telemetry of one process, which sends what it has at once.
func (w *traced) process(service, instance string) *tracing.Telemetry {
	w.t.Helper()
	exporter, err := otlptracegrpc.New(w.ctx, otlptracegrpc.WithEndpointURL(w.sink.GRPCURL()))
	if err != nil {
		w.t.Fatal(err)
	}
	tel, err := tracing.Setup(w.ctx, tracing.SetupConfig{
		Service: service, Instance: instance, Local: []sdktrace.SpanExporter{exporter}, Getenv: func(string) string { return "" },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			w.t.Error(err)
		}
	})
	return tel
}

// receiverCalled makes a receiver that traces under a name.
func (w *traced) receiverCalled(name string, change func(*ReceiverConfig)) *Receiver {
	w.t.Helper()
	tel := w.process("drydock-receiver", name)
	return w.receiver(func(c *ReceiverConfig) {
		c.Name, c.Tracer = name, tel.Tracer()
		if change != nil {
			change(c)
		}
	})
}

// trace waits until a version's trace has as many ended cycles as are expected, and checks that it hangs together.
func (w *traced) trace(key messages.Key, cycles int) *tracesink.Trace {
	w.t.Helper()
	id := tracesink.TraceID(tracing.VersionContext(w.ranks[0].Run().Nonce, key.Version).TraceID())
	t, err := w.sink.Wait(w.ctx, id, func(t tracesink.Trace) bool {
		return len(t.Named("refit")) >= cycles && len(t.Named("publish")) == len(w.ranks) && len(t.Named("refit version")) == 1
	})
	var drawing strings.Builder
	_ = t.Draw(&drawing, tracesink.DrawOptions{})
	if err != nil {
		w.t.Fatalf("%v\n%s", err, &drawing)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("%s", &drawing)
		}
	})
	there := map[tracesink.SpanID]string{}
	for i := range t.Spans {
		there[t.Spans[i].ID] = t.Spans[i].Name
	}
	for i := range t.Spans {
		if sp := &t.Spans[i]; sp.Parent != (tracesink.SpanID{}) && there[sp.Parent] == "" {
			w.t.Errorf("%s of %s hangs on a span that is not in the trace", sp.Name, sp.Process())
		}
	}
	return &t
}

// cycle is what one receiver's n-th cycle left in a trace: its span, and all below it, by name.
func cycleOf(t *testing.T, tr *tracesink.Trace, receiver string, n int) (top tracesink.Span, below map[string][]tracesink.Span) {
	t.Helper()
	for _, sp := range tr.Named("refit") {
		if sp.Instance() != receiver {
			continue
		}
		if n--; n >= 0 {
			continue
		}
		below = map[string][]tracesink.Span{}
		for open := []tracesink.SpanID{sp.ID}; len(open) > 0; open = open[1:] {
			for _, child := range tr.Children(open[0]) {
				below[child.Name] = append(below[child.Name], child)
				open = append(open, child.ID)
			}
		}
		return sp, below
	}
	t.Fatalf("the trace has no such cycle of %s", receiver)
	return top, nil
}

// events lists the names of a span's events.
func events(sp *tracesink.Span) (names []string) {
	for _, e := range sp.Events {
		names = append(names, e.Name)
	}
	return names
}

// TestOneTraceOfAVersionWhoeverComesAndWhen has one receiver there from the start, and one that comes when the version is
// old news: both are in the publishers' trace, with every stage, and the caller's pause is a gap.
func TestOneTraceOfAVersionWhoeverComesAndWhen(t *testing.T) {
	t.Parallel()
	w := newTraced(t, 3)
	early := w.receiverCalled("early", nil)
	key := w.publish(1)
	s, err := early.Stage(w.ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	const pause = 40 * time.Millisecond
	pass(t, pause)
	if err := early.Apply(w.ctx, s); err != nil {
		t.Fatal(err)
	}
	late := w.receiverCalled("late", nil)
	w.refit(late, key)
	tr := w.trace(key, 2)
	for _, name := range []string{"early", "late"} {
		_, below := cycleOf(t, tr, name, 0)
		for _, stage := range tracing.Stages() {
			if len(below[stage.String()]) == 0 && stage != tracing.RolloutReadiness { // the installer reports no wait
				t.Errorf("%s: no span of stage %s", name, stage)
			}
		}
		reads := below["read"]
		if len(reads) != 3 {
			t.Errorf("%s: %d reads, expected one of each source", name, len(reads))
		}
		for i := range reads {
			if n, _ := reads[i].Attr("drydock.bytes").(int64); n <= 0 || reads[i].Attr("drydock.transport") != "inproc" {
				t.Errorf("%s: a read of %v bytes by %v", name, reads[i].Attr("drydock.bytes"), reads[i].Attr("drydock.transport"))
			}
			segments, _ := reads[i].Attr("drydock.segments").(int64)
			if retries, told := reads[i].Attr("drydock.retries").(int64); segments < 1 || retries != 0 || !told {
				t.Errorf("%s: a read of %v segments with %v retries", name, reads[i].Attr("drydock.segments"), reads[i].Attr("drydock.retries"))
			}
		}
		total := 1
		for _, spans := range below {
			total += len(spans)
		}
		if total > maxCycleSpans+len(reads) {
			t.Errorf("%s: %d spans, expected at most %d and one for each read", name, total, maxCycleSpans)
		}
	}
	_, below := cycleOf(t, tr, "early", 0)
	if gap := below[tracing.PhaseApply][0].Start.Sub(below[tracing.PhaseStage][0].End); gap < pause {
		t.Errorf("a gap of %v between stage and apply, expected %v at least", gap, pause)
	}
	for _, name := range []string{"digest", "upload", "commit"} {
		if n := len(tr.Named(name)); n != 3 {
			t.Errorf("%d spans %s of three publishers", n, name)
		}
	}
}

// maxCycleSpans is what docs/tracing.md promises of a cycle, besides its reads.
const maxCycleSpans = 16

// TestTwoVersionsAreTwoTracesLinked has a receiver apply two versions.
func TestTwoVersionsAreTwoTracesLinked(t *testing.T) {
	t.Parallel()
	w := newTraced(t, 1)
	r := w.receiverCalled("host", nil)
	one, two := w.publish(1), w.publish(2)
	w.refit(r, one)
	w.refit(r, two)
	first, second := w.trace(one, 1), w.trace(two, 1)
	a, _ := cycleOf(t, first, "host", 0)
	b, _ := cycleOf(t, second, "host", 0)
	if first.ID == second.ID || len(a.Links) != 0 || !slices.Equal(b.Links, []tracesink.TraceID{first.ID}) {
		t.Errorf("traces %s and %s, links %v and %v", first.ID, second.ID, a.Links, b.Links)
	}
}

// TestTheReadOfASourceSaysWhoStoodInForIt has one of two replicas fail for ever: the span of its read counts the batches that
// were read again, and names the other.
func TestTheReadOfASourceSaysWhoStoodInForIt(t *testing.T) {
	t.Parallel()
	w := newTracedWorld(t, worldOptions{ranks: 2, replicated: true})
	r := w.receiverCalled("host", func(c *ReceiverConfig) {
		c.Transports[0] = rdmatest.Faulty(c.Transports[0], rdmatest.Fault{Kind: rdmatest.Reset, Rank: 1})
	})
	key := w.publish(1)
	w.refit(r, key)
	_, below := cycleOf(t, w.trace(key, 1), "host", 0)
	for i := range below["read"] {
		read := &below["read"][i]
		if read.Attr("drydock.source.rank") != int64(1) {
			continue
		}
		retries, _ := read.Attr("drydock.retries").(int64)
		if retries < 1 || fmt.Sprint(read.Attr("drydock.stand_ins")) != "[0]" || !slices.Contains(events(read), tracing.EventRetry) {
			t.Errorf("%d retries, %v stood in, events %q", retries, read.Attr("drydock.stand_ins"), events(read))
		}
		return
	}
	t.Error("no span of rank 1's read")
}

// TestTraceOfWhatWentWrong has a stage fail, a version be released, and the receiver be started anew in between: each
// leaves a cycle of its own in the one trace, and says what became of it.
func TestTraceOfWhatWentWrong(t *testing.T) {
	t.Parallel()
	w := newTraced(t, 2)
	key := w.publish(1)
	root := filepath.Join(t.TempDir(), "arenas")
	first := w.receiverCalled("host", func(c *ReceiverConfig) {
		c.ArenaRoot = root
		c.Lanes = 1 // the second attempt at a batch meets the second fault
		c.Transports[0] = rdmatest.Faulty(c.Transports[0], rdmatest.Fault{Kind: rdmatest.Reset, Rank: 1, Count: 2})
	})
	_ = w.fails(first, key, SourceLost)
	s, err := first.Stage(w.ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	first.Release(s)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again := w.receiverCalled("host", func(c *ReceiverConfig) { c.ArenaRoot = root })
	w.refit(again, key)

	tr := w.trace(key, 3)
	failed, below := cycleOf(t, tr, "host", 0)
	wire := below["wire_transfer"][0]
	if !failed.Failed || failed.Attr("error.type") != string(SourceLost) || !wire.Failed || !strings.Contains(wire.Message, "rank 1") {
		t.Errorf("the failed cycle says %v, %v; its reads %v, %q", failed.Failed, failed.Attr("error.type"), wire.Failed, wire.Message)
	}
	if got := events(&wire); !slices.Contains(got, tracing.EventRetry) || !slices.Contains(got, tracing.EventBreaker) {
		t.Errorf("events of the failed reads: %q, expected a retry and the breaker", got)
	}
	released, below := cycleOf(t, tr, "host", 1)
	if released.Failed || released.Attr("drydock.outcome") != "released" || len(below[tracing.PhaseApply]) != 0 {
		t.Errorf("the released cycle: failed %v, outcome %v, %d applies", released.Failed, released.Attr("drydock.outcome"), len(below[tracing.PhaseApply]))
	}
	applied, below := cycleOf(t, tr, "host", 2)
	if applied.Failed || applied.Attr("drydock.outcome") != "applied" || len(below[tracing.PhaseApply]) != 1 {
		t.Errorf("the cycle of the next life: failed %v, outcome %v", applied.Failed, applied.Attr("drydock.outcome"))
	}
}

// TestEventsOfLeasesAndVersions wants the lease's begin and end on every cycle, and superseded versions said where they
// are looked for.
func TestEventsOfLeasesAndVersions(t *testing.T) {
	t.Parallel()
	w := newTraced(t, 1)
	r := w.receiverCalled("host", nil)
	one, two := w.publish(1), w.publish(2)
	staged, err := r.begin(w.ctx, &Staged{r: r, key: two, skips: []messages.Key{one}})
	if err == nil {
		err = r.Apply(w.ctx, staged)
	}
	if err != nil {
		t.Fatal(err)
	}
	top, below := cycleOf(t, w.trace(two, 1), "host", 0)
	if len(top.Events) != 1 || top.Events[0].Name != tracing.EventSkipped || top.Events[0].Attributes[0].Value != one.String() {
		t.Errorf("events of the cycle: %+v, expected the skipped version", top.Events)
	}
	var states []any
	for _, sp := range append(below["control_discovery"], below[tracing.PhaseStage]...) {
		for _, e := range sp.Events {
			if e.Name == tracing.EventLease {
				states = append(states, e.Attributes[0].Value)
			}
		}
	}
	if !slices.Equal(states, []any{"acquired", "released"}) {
		t.Errorf("lease events: %v", states)
	}
	if err := w.ranks[0].Retire(w.ctx, 1); err != nil {
		t.Fatal(err)
	}
	fresh := w.receiverCalled("fresh", nil)
	_ = w.fails(fresh, one, Gone)
	top, _ = cycleOf(t, w.trace(one, 1), "fresh", 0)
	if got := events(&top); !slices.Equal(got, []string{tracing.EventSuperseded}) || top.Attr("drydock.outcome") != "superseded" {
		t.Errorf("events of the cycle of a withdrawn version: %q, outcome %v", got, top.Attr("drydock.outcome"))
	}
}

// TestErrorsStandOnTheSpanThatFailed has the engine refuse.
func TestErrorsStandOnTheSpanThatFailed(t *testing.T) {
	t.Parallel()
	w := newTraced(t, 1)
	r := w.receiverCalled("host", func(c *ReceiverConfig) {
		c.Installer = InstallerFunc(func(context.Context, Installation) (Report, error) { return Report{}, errors.New("no, thank you") })
	})
	key := w.publish(1)
	s, err := r.Stage(w.ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(w.ctx, s); ClassOf(err) != InstallRefused {
		t.Fatal(err)
	}
	_, below := cycleOf(t, w.trace(key, 1), "host", 0)
	for name, spans := range below {
		for i := range spans {
			want := name == "installation" || name == tracing.PhaseApply
			if spans[i].Failed != want || want && !strings.Contains(spans[i].Message, "no, thank you") {
				t.Errorf("%s: failed %v, %q", name, spans[i].Failed, spans[i].Message)
			}
		}
	}
}
