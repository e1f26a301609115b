package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/inproc"
	"github.com/drydock-rl/drydock/pkg/refit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// testTrainer is a trainer with the network that its memory is served on.
type testTrainer struct {
	*Trainer
	net *inproc.Net
}

// lone is a trainer of one rank with the control plane that it publishes to.
func lone(t *testing.T, steps Steps, change func(*Shards)) *testTrainer {
	t.Helper()
	control := natstest.Open(t, natstest.Start(t, natsd.Options{}), messages.Config{Model: "m", Memory: true})
	return life(t, control, "one", steps, change)
}

// life starts a process, as it were, of the only rank.
// change adapts its shards, if it isn't nil.
func life(t *testing.T, control *messages.Control, incarnation string, steps Steps, change func(*Shards)) *testTrainer {
	t.Helper()
	shards, err := Cut(tiny(t), shardlayout.FSDP, 0, 1, tiles.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(shards)
	}
	net := inproc.NewNet()
	transport := net.New(incarnation)
	slots := make([]*rdma.Memory, 2)
	for i := range slots {
		if slots[i], err = rdma.Alloc(shards.Nbytes(), rdma.AllocOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := refit.NewPublisher(natstest.Context(t, patience), refit.PublisherConfig{
		Model: "m", Incarnation: incarnation, World: 1, Job: "job", Host: "here",
		Control: control, Transports: []rdma.Transport{transport}, Slots: slots, Layout: shards.Layout(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		errs := []error{p.Close(), transport.Close()}
		for _, m := range slots {
			errs = append(errs, m.Close())
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
	return &testTrainer{
		Trainer: &Trainer{Publisher: p, Shards: shards, Control: control, Steps: steps, Logger: slog.New(slog.DiscardHandler)},
		net:     net,
	}
}

// run runs the trainer until its context ends; the returned function ends it and gives its error.
func (t *Trainer) run(tb testing.TB) (stop func() error) {
	ctx, cancel := context.WithCancel(natstest.Context(tb, patience))
	done := make(chan error, 1)
	go func() { done <- t.Run(ctx, patience) }()
	return func() error { cancel(); return <-done }
}

// awaitNewest waits for the newest committed version.
func awaitNewest(t *testing.T, c *messages.Control, version uint64) {
	t.Helper()
	ctx := natstest.Context(t, patience)
	watched, err := c.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for a := range watched {
		if a.Key.Version == version {
			return
		}
	}
	t.Fatalf("version %d was not announced within %v", version, patience)
}

func TestTrainerPublishesAndWithdraws(t *testing.T) {
	t.Parallel()
	tr := lone(t, Steps{Versions: 3}, nil)
	stop := tr.run(t)
	awaitNewest(t, tr.Control, 3)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	versions, err := tr.Control.Versions(natstest.Context(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		if v.Manifest != nil {
			t.Errorf("version %s stands after the trainer has left", v.Key)
		}
	}
}

// TestTrainerThatFailsWithdraws has a trainer give up, for want of receivers: nobody may go on reading from a process that ends.
func TestTrainerThatFailsWithdraws(t *testing.T) {
	t.Parallel()
	tr := lone(t, Steps{Versions: 3, AwaitReceivers: 1, AwaitTimeout: time.Millisecond}, nil)
	ctx := natstest.Context(t, patience)
	if err := tr.Run(ctx, patience); err == nil || !strings.Contains(err.Error(), "wait for receivers") {
		t.Fatalf("got %v", err)
	}
	if key, found, err := tr.Control.Newest(ctx); found || err != nil {
		t.Errorf("version %s stands although its trainer has left: %v", key, err)
	}
}

// TestSecondLifeGoesOn has a rank die without a word while its version stands. The next life withdraws what nobody can read
// any more, and goes on with the version after it.
func TestSecondLifeGoesOn(t *testing.T) {
	t.Parallel()
	first := lone(t, Steps{}, nil)
	ctx := natstest.Context(t, patience)
	if err := first.step(ctx, 1); err != nil {
		t.Fatal(err)
	}
	second := life(t, first.Control, "two", Steps{}, nil)
	version, err := second.first(ctx)
	if err != nil || version != 2 {
		t.Fatalf("the second life begins with version %d, error %v; expected 2", version, err)
	}
	if _, found, err := first.Control.Newest(ctx); found || err != nil {
		t.Errorf("a version whose bytes are gone still stands: %v, %v", found, err)
	}
	if err := second.step(ctx, 2); err != nil {
		t.Error(err)
	}
}

// TestStreamGoneAndBack has the model's stream vanish under a trainer, as when a server comes back without its data, and
// somebody make it again: the trainer is still there, and receivers follow its next versions.
func TestStreamGoneAndBack(t *testing.T) {
	t.Parallel()
	server, cfg := natstest.Start(t, natsd.Options{}), messages.Config{Model: "m", Memory: true}
	tr := life(t, natstest.Open(t, server, cfg), "one", Steps{Interval: time.Millisecond}, nil)
	stop := tr.run(t)
	awaitNewest(t, tr.Control, 3)
	ctx, nc := natstest.Context(t, patience), natstest.Connect(t, server)
	if err := messages.Remove(ctx, nc, cfg); err != nil {
		t.Fatal(err)
	}
	if err := messages.Init(ctx, nc, cfg); err != nil {
		t.Fatal(err)
	}
	watched, err := tr.Control.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, ok := <-watched; !ok {
			t.Fatal("nothing was announced on the new stream")
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestStreamGone has it stay away: the trainer says so, waits, and ends when it is told to.
func TestStreamGone(t *testing.T) {
	t.Parallel()
	server, cfg := natstest.Start(t, natsd.Options{}), messages.Config{Model: "m", Memory: true}
	tr := life(t, natstest.Open(t, server, cfg), "one", Steps{}, nil)
	ctx := natstest.Context(t, patience)
	for v := range uint64(2) { // all slots hold something, which a third version has withdrawn first
		if err := tr.step(ctx, v+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := messages.Remove(ctx, natstest.Connect(t, server), cfg); err != nil {
		t.Fatal(err)
	}
	said := make(chan struct{}, 1)
	tr.Logger = slog.New(&heard{Handler: slog.DiscardHandler, text: "lost the model's stream", said: said})
	told, tell := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- tr.persist(told, 3) }()
	select {
	case <-said:
	case <-ctx.Done():
		t.Error("nobody was told that the stream is gone")
	}
	tell()
	if err := <-done; !errors.Is(err, messages.ErrNoStream) {
		t.Errorf("ended with %v", err)
	}
}

// heard signals when a message with a text is logged.
type heard struct {
	slog.Handler
	text string
	said chan<- struct{}
}

func (h *heard) Enabled(context.Context, slog.Level) bool { return true }

func (h *heard) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, h.text) {
		select {
		case h.said <- struct{}{}:
		default:
		}
	}
	return nil
}

// TestOtherRanksLead has a rank start when nothing is listed any more but another rank is in the middle of a version.
func TestOtherRanksLead(t *testing.T) {
	t.Parallel()
	tr := lone(t, Steps{}, nil)
	ctx := natstest.Context(t, patience)
	err := tr.Control.PutStatus(ctx, "publisher-1", messages.Status{
		Role: messages.RolePublisher, Slots: []messages.Slot{{Key: tr.Publisher.Key(7), State: "published"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if version, err := tr.first(ctx); err != nil || version != 7 {
		t.Errorf("begins with version %d, error %v; expected 7", version, err)
	}
}

// TestNobodyWaitsForAnEndedVersion withdraws a version while its trainer waits for receivers.
func TestNobodyWaitsForAnEndedVersion(t *testing.T) {
	t.Parallel()
	tr := lone(t, Steps{AwaitReceivers: 1, AwaitTimeout: patience}, nil)
	ctx := natstest.Context(t, patience)
	done := make(chan error, 1)
	go func() { done <- tr.step(ctx, 1) }()
	awaitNewest(t, tr.Control, 1)
	if err := tr.Control.WaitDrained(ctx, tr.Publisher.Key(1)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAwaitReceiversNamesTheLate(t *testing.T) {
	t.Parallel()
	tr := lone(t, Steps{AwaitReceivers: 2, AwaitTimeout: 50 * time.Millisecond}, nil)
	ctx, key := natstest.Context(t, patience), tr.Publisher.Key(1)
	for name, s := range map[string]messages.Status{
		"there": {Role: messages.RoleReceiver, Serving: key},
		"sick":  {Role: messages.RoleReceiver, Failure: &messages.Failure{Class: "no-room", Text: "no room for arenas", At: time.Now()}},
		"busy":  {Role: messages.RoleReceiver, StageState: "reading"},
		"other": {Role: messages.RolePublisher},
	} {
		if err := tr.Control.PutStatus(ctx, name, s); err != nil {
			t.Fatal(err)
		}
	}
	err := tr.awaitReceivers(ctx, key)
	for _, words := range []string{"1 of 2", "sick", "no room for arenas", "busy", "reading"} {
		if !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("the error doesn't say %q: %v", words, err)
		}
	}
	if strings.Contains(fmt.Sprint(err), "other") {
		t.Errorf("the error names a publisher: %v", err)
	}
}
