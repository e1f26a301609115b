package refit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// A point is a moment of a cycle at which something can happen. The tracer that a receiver is given hears of the begin
// and the end of each stage, on the goroutine that does the stage's work and before that goes on; so a test needs no hook
// in the product, and no sleep, to be exactly there.
type point struct {
	name  string
	phase string // the call that is under way
	span  string // "": not a span's edge but a read, or the installer
	ends  bool   // at the span's end, not its begin
}

const (
	midRead     = "a read is under way"
	inInstaller = "in the installer"
)

// points are the cycle's, in order.
var points = []point{
	{"stage begins", tracing.PhaseStage, tracing.PhaseStage, false},
	{"leased and assembled", tracing.PhaseStage, "control_discovery", true},
	{"planned", tracing.PhaseStage, "transfer_planning", true},
	{"sources checked", tracing.PhaseStage, "source_preparation", true},
	{"connecting", tracing.PhaseStage, "setup_registration", false},
	{"connected", tracing.PhaseStage, "setup_registration", true},
	{"reading begins", tracing.PhaseStage, "wire_transfer", false},
	{midRead, tracing.PhaseStage, "", false},
	{"all read", tracing.PhaseStage, "wire_transfer", true},
	{"transformed", tracing.PhaseStage, "transformation", true},
	{"sealed", tracing.PhaseStage, "receive_sync", true},
	{"staged", tracing.PhaseStage, tracing.PhaseStage, true},
	{"apply begins", tracing.PhaseApply, tracing.PhaseApply, false},
	{"may be applied", tracing.PhaseApply, "control_discovery", true},
	{"installing", tracing.PhaseApply, "installation", false},
	{inInstaller, tracing.PhaseApply, "", false},
	{"flipped, not shown yet", tracing.PhaseApply, "installation", true},
	{"shown", tracing.PhaseApply, "post_install", true},
}

func pointNamed(name string) *point {
	for i := range points {
		if points[i].name == name {
			return &points[i]
		}
	}
	panic("no point " + name)
}

// before says whether point i lies before the point of that name.
func before(i int, name string) bool {
	for k := range points {
		if points[k].name == name {
			return i < k
		}
	}
	panic("no point " + name)
}

// trap runs a function the first time that a cycle gets to a point, and stays out of the way otherwise.
type trap struct {
	mu     sync.Mutex
	at     *point
	strike func()
	phase  string
	struck bool
}

// set arms the trap.
func (t *trap) set(p *point, strike func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.strike, t.struck = p, strike, false
}

// sprung says whether the point was reached, and disarms the trap.
func (t *trap) sprung() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = nil
	return t.struck
}

// reached is told of every moment; the strike runs on the goroutine that got there, without the lock.
func (t *trap) reached(name, span string, ends bool) {
	t.mu.Lock()
	if !ends && (span == tracing.PhaseStage || span == tracing.PhaseApply) {
		t.phase = span
	}
	hit := t.at != nil && !t.struck && t.at.phase == t.phase && t.at.span == span && t.at.ends == ends &&
		(span != "" || t.at.name == name)
	t.struck = t.struck || hit
	strike := t.strike
	t.mu.Unlock()
	if hit {
		strike()
	}
}

// OnStart implements sdktrace.SpanProcessor.
func (t *trap) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) { t.reached("", s.Name(), false) }

// OnEnd implements sdktrace.SpanProcessor.
func (t *trap) OnEnd(s sdktrace.ReadOnlySpan) { t.reached("", s.Name(), true) }

// Shutdown implements sdktrace.SpanProcessor.
func (t *trap) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (t *trap) ForceFlush(context.Context) error { return nil }

// trapped makes a receiver whose cycles go through a trap, and whose record lines are kept.
func (w *world) trapped(change func(*ReceiverConfig)) (*Receiver, *trap, *recordLines) {
	w.t.Helper()
	t, lines := &trap{}, &recordLines{}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(t))
	w.t.Cleanup(func() { _ = tp.Shutdown(context.Background()) })
	r := w.receiver(func(c *ReceiverConfig) {
		c.Tracer, c.Lines = tp.Tracer("test"), lines
		if change != nil {
			change(c)
		}
		if c.Installer == nil {
			c.Installer = Shm
		}
		installer := c.Installer
		c.Installer = InstallerFunc(func(ctx context.Context, in Installation) (Report, error) {
			t.reached(inInstaller, "", false)
			return installer.Install(ctx, in)
		})
		c.Transports[0] = &trapTransport{c.Transports[0], t}
	})
	return r, t, lines
}

// trapTransport springs the trap when a read has been posted and is not waited for yet.
type trapTransport struct {
	rdma.Transport
	trap *trap
}

func (t *trapTransport) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	p, err := t.Transport.Connect(ctx, r)
	if err != nil {
		return nil, err
	}
	return &trapPeer{p, t.trap}, nil
}

type trapPeer struct {
	rdma.Peer
	trap *trap
}

func (p *trapPeer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	tr, err := p.Peer.Read(dst, segs)
	p.trap.reached(midRead, "", false)
	return tr, err
}

// troubles are what reads from rank 1 suffer while a test says so.
type troubles struct{ stall, corrupt, reset atomic.Bool }

// troubled is a transport whose reads suffer from troubles.
type troubled struct {
	rdma.Transport
	*troubles
}

func (t *troubled) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	p, err := t.Transport.Connect(ctx, r)
	if err != nil {
		return nil, err
	}
	peer := &troubledPeer{Peer: p, troubles: t.troubles, by: map[rdmatest.FaultKind]rdma.Peer{}}
	for _, kind := range []rdmatest.FaultKind{rdmatest.Stall, rdmatest.Corrupt, rdmatest.Reset} {
		if peer.by[kind], err = rdmatest.Faulty(t.Transport, rdmatest.Fault{Kind: kind, Rank: 1}).Connect(ctx, r); err != nil {
			return nil, errors.Join(err, peer.Close())
		}
	}
	return peer, nil
}

type troubledPeer struct {
	rdma.Peer
	*troubles
	by map[rdmatest.FaultKind]rdma.Peer
}

func (p *troubledPeer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	switch {
	case p.stall.Load():
		return p.by[rdmatest.Stall].Read(dst, segs)
	case p.corrupt.Load():
		return p.by[rdmatest.Corrupt].Read(dst, segs)
	case p.reset.Load():
		return p.by[rdmatest.Reset].Read(dst, segs)
	}
	return p.Peer.Read(dst, segs)
}

func (p *troubledPeer) Close() error {
	errs := []error{p.Peer.Close()}
	for _, other := range p.by {
		if other != nil {
			errs = append(errs, other.Close())
		}
	}
	return errors.Join(errs...)
}

// recordLines keeps the MX_REFIT_TIMING lines of a receiver. It is safe for concurrent use.
type recordLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *recordLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// of returns the records of a version.
func (l *recordLines) of(t *testing.T, version uint64) []tracing.Record {
	t.Helper()
	l.mu.Lock()
	text := l.text.String()
	l.mu.Unlock()
	var found []tracing.Record
	for line := range strings.Lines(text) {
		r, err := tracing.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		if r.Version == version {
			found = append(found, r)
		}
	}
	return found
}

// once returns the only record of a version, which must say the outcome.
func (l *recordLines) once(t *testing.T, version uint64, outcome tracing.Outcome) tracing.Record {
	t.Helper()
	found := l.of(t, version)
	if len(found) != 1 || found[0].Drydock.Outcome != outcome {
		var said []string
		for i := range found {
			said = append(said, fmt.Sprintf("%s (%s)", found[i].Drydock.Outcome, found[i].Drydock.Error))
		}
		t.Fatalf("version %d has the records %q, expected one: %s", version, said, outcome)
	}
	return found[0]
}
