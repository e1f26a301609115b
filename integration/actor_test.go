package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/internal/trainer"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// An actor is a process that a test starts to have it stop at an exact moment of its work, without a sleep and without a
// hook in the product. It is this test's own program run again: a receiver or a publisher made of the same packages as
// the real ones, with a tracer that hears of the begin and the end of each piece of work, on the thread that does it. At
// its moment the actor sends SIGSTOP to itself; the kernel's state tells the test that it has got there, and then it is
// killed, or goes on when somebody says so.

// actorVariable is the environment variable that makes an actor of this program: the actor in JSON.
const actorVariable = "DRYDOCK_TEST_ACTOR"

// actor says what a process does. Stops are by version.
type actor struct {
	Role    string // receiver, publisher
	NATS    string
	Model   string
	Name    string
	Arenas  string
	Capture string
	TP      int
	Stops   map[uint64]moment

	// Of a receiver that shares its engine with others; zero: it has all ranks, and the engine, for itself.
	Ranks   []int
	Host    string
	Group   refit.Engine
	Engine  string          // file in which its part of the engine notes what it was given; "": nowhere
	Refuses map[uint64]bool // versions that its part of the engine does not take

	Rank, World, Receivers int
	Checkpoint             string
	Versions               uint64
}

// moment is a piece of work's begin or end.
type moment struct {
	Name  string
	Phase string // the call of a receiver that is under way; "" for publishers
	Span  string // "": told by Name
	Ends  bool
}

// leaseTTL of the actors' leases: short, since tests wait until the lease of a process that does not move has expired.
const leaseTTL = 2 * time.Second

// act is the main function of an actor; it returns the exit code.
func act(spec string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var a actor
	err := json.Unmarshal([]byte(spec), &a)
	if err == nil {
		err = a.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "actor:", err)
		return 1
	}
	return 0
}

// stopper stops the process at its moments, each once.
type stopper struct {
	mu      sync.Mutex
	stops   map[uint64]moment
	version uint64
	phase   string
}

// reached is told of every moment.
func (s *stopper) reached(name, span string, ends bool) {
	s.mu.Lock()
	if !ends && (span == tracing.PhaseStage || span == tracing.PhaseApply) {
		s.phase = span
	}
	m, set := s.stops[s.version]
	hit := set && m.Phase == s.phase && m.Span == span && (span == "" && m.Name == name || span != "" && m.Ends == ends)
	if hit {
		delete(s.stops, s.version)
	}
	s.mu.Unlock()
	if hit {
		stopHere()
	}
}

// stopHere stops the process and returns when it goes on. The signal goes to this very thread: one for the process might
// be taken by another, and this one be an instruction, or a flipped name, further by then.
func stopHere() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// OnStart implements sdktrace.SpanProcessor. The span of a cycle, or of a publication, says which version is next.
func (s *stopper) OnStart(_ context.Context, span sdktrace.ReadWriteSpan) {
	for _, a := range span.Attributes() {
		if a.Key == tracing.AttrVersion {
			s.mu.Lock()
			s.version = uint64(a.Value.AsInt64())
			s.mu.Unlock()
		}
	}
	s.reached("", span.Name(), false)
}

// OnEnd implements sdktrace.SpanProcessor.
func (s *stopper) OnEnd(span sdktrace.ReadOnlySpan) { s.reached("", span.Name(), true) }

// Shutdown implements sdktrace.SpanProcessor.
func (s *stopper) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (s *stopper) ForceFlush(context.Context) error { return nil }

func (a *actor) run(ctx context.Context) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	stops := &stopper{stops: a.Stops}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(stops))
	nc, err := messages.Dial(a.NATS, messages.DialConfig{Name: a.Name, Logger: log})
	if err != nil {
		return err
	}
	defer nc.Close()
	control, err := messages.Open(ctx, nc, messages.Config{Model: a.Model, Logger: log, LeaseTTL: leaseTTL})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	if a.Role == "publisher" {
		return a.publish(ctx, control, tp, log)
	}
	return a.follow(ctx, control, tp, stops, log)
}

// follow is what the receiver program does.
func (a *actor) follow(ctx context.Context, control *messages.Control, tp *sdktrace.TracerProvider, stops *stopper, log *slog.Logger) (err error) {
	transport, err := tcp.New(tcp.Config{Incarnation: rdma.NewIncarnation(), Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, transport.Close()) }()
	b, err := os.ReadFile(a.Capture)
	if err != nil {
		return err
	}
	capture, err := plan.DecodeCapture(b)
	if err != nil {
		return err
	}
	cfg := refit.ReceiverConfig{
		Name: a.Name, Host: a.Host, Model: a.Model, Control: control, Transports: []rdma.Transport{&stoppingTransport{transport, stops}},
		TP: a.TP, ArenaRoot: filepath.Join(a.Arenas, a.Name), Logger: log, Tracer: tp.Tracer("actor"), Engine: a.Group,
		Installer: refit.InstallerFunc(func(_ context.Context, in refit.Installation) (refit.Report, error) {
			stops.reached(inInstaller, "", false)
			err := a.install(in)
			stops.reached(afterInstaller, "", false)
			return refit.Report{}, err
		}),
	}
	ranks := a.Ranks
	if ranks == nil {
		ranks = everyRank(a.TP)
	}
	for _, rank := range ranks {
		d, err := capture.Dest(a.TP, rank, false)
		if err != nil {
			return err
		}
		cfg.Dests = append(cfg.Dests, d)
	}
	r, err := refit.NewReceiver(cfg)
	if err != nil {
		return err
	}
	return errors.Join(r.Follow(ctx), r.Close())
}

// install is the actor's part of an engine: it says no, or notes what it was given.
func (a *actor) install(in refit.Installation) error {
	if a.Refuses[in.Key.Version] {
		return refit.Refused(fmt.Errorf("not version %d", in.Key.Version))
	}
	if a.Engine == "" {
		return nil
	}
	f, err := os.OpenFile(a.Engine, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, in.Key.Version)
	return errors.Join(err, f.Close())
}

// publish is what the publisher program does for a checkpoint.
func (a *actor) publish(ctx context.Context, control *messages.Control, tp *sdktrace.TracerProvider, log *slog.Logger) (err error) {
	source, err := checkpoint.Open(a.Checkpoint)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	shards, err := trainer.Cut(source, shardlayout.FSDP, a.Rank, a.World, tiles.Options{})
	if err == nil {
		err = shards.Serve(served.Plain, served.Asked{})
	}
	if err != nil {
		return err
	}
	incarnation := rdma.NewIncarnation()
	transport, err := tcp.New(tcp.Config{Listen: "127.0.0.1:0", Incarnation: incarnation, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, transport.Close()) }()
	slots := make([]*rdma.Memory, 2)
	for i := range slots {
		if slots[i], err = rdma.Alloc(shards.Nbytes(), rdma.AllocOptions{}); err != nil {
			return err
		}
	}
	p, err := refit.NewPublisher(ctx, refit.PublisherConfig{
		Name: a.Name, Model: a.Model, Incarnation: incarnation, Rank: a.Rank, World: a.World, Job: "job", Control: control,
		Transports: []rdma.Transport{transport}, Slots: slots, Layout: shards.Layout(), CommitTimeout: patience, DrainTimeout: patience,
		Logger: log, Tracer: tp.Tracer("actor"),
	})
	if err != nil {
		return err
	}
	t := &trainer.Trainer{Publisher: p, Shards: shards, Control: control, Logger: log, Steps: trainer.Steps{
		Versions: a.Versions, AwaitReceivers: a.Receivers, AwaitTimeout: patience, Seed: seed, Served: served.Plain,
	}}
	return errors.Join(t.Run(ctx, 5*time.Second), p.Close())
}

// The moments that are no span's edge.
const (
	midRead        = "a read is under way"
	inInstaller    = "in the installer"
	afterInstaller = "the engine has it, nobody knows" // of several receivers: the others wait for this one's yes
)

// stoppingTransport has a moment when a read was posted and is not waited for yet.
type stoppingTransport struct {
	rdma.Transport
	stops *stopper
}

func (t *stoppingTransport) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	p, err := t.Transport.Connect(ctx, r)
	if err != nil {
		return nil, err
	}
	return &stoppingPeer{p, t.stops}, nil
}

type stoppingPeer struct {
	rdma.Peer
	stops *stopper
}

func (p *stoppingPeer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	t, err := p.Peer.Read(dst, segs)
	p.stops.reached(midRead, "", false)
	return t, err
}

// actor starts an actor as a process of its own.
func (w *world) actor(a actor) *process {
	w.t.Helper()
	a.NATS, a.Model = w.server.URL(), w.model
	spec, err := json.Marshal(a)
	if err != nil {
		w.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	return startWith(w.t, a.Name, []string{tracing.EnvStdout + "=1", actorVariable + "=" + string(spec)}, self)
}

// actingReceiver starts a receiver that stops at moments.
func (w *world) actingReceiver(name string, stops map[uint64]moment) *receiver {
	w.t.Helper()
	return &receiver{process: w.actor(actor{
		Role: "receiver", Name: name, Arenas: w.arenas, Capture: built.captures[w.tp], TP: w.tp, Stops: stops,
	}), w: w}
}

// actingPublisher starts a trainer rank that stops at moments.
func (w *world) actingPublisher(rank int, versions uint64, stops map[uint64]moment) *process {
	w.t.Helper()
	return w.actor(actor{
		Role: "publisher", Name: "publisher-" + strconv.Itoa(rank), Rank: rank, World: w.trainers, Receivers: w.receivers + 1,
		Checkpoint: built.checkpoint, Versions: versions, Stops: stops,
	})
}

// stands waits until the process has stopped itself.
func (p *process) stands(at string) {
	p.t.Helper()
	eventually(p.t, p.name+" stands: "+at, func() (bool, string) {
		state := p.kernelState()
		return state == "T", "state " + state + ", last it said: " + p.lastSaid()
	})
}
