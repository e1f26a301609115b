package refit

import (
	"context"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// statusOf finds a process among those whose status has not expired.
func (w *world) statusOf(name string) (messages.Status, bool) {
	w.t.Helper()
	all, err := w.control.Statuses(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			return s, true
		}
	}
	return messages.Status{}, false
}

// TestAReceiverThatWaitsForItsEngineIsListed has an installer that takes several times as long as a status lasts.
func TestAReceiverThatWaitsForItsEngineIsListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1, cfg: messages.Config{StatusTTL: time.Second}})
	inside, goOn := make(chan struct{}), make(chan struct{})
	r := w.receiver(func(c *ReceiverConfig) {
		c.statusEvery = 100 * time.Millisecond
		c.Installer = InstallerFunc(func(context.Context, Installation) (Report, error) {
			close(inside)
			<-goOn
			return Report{}, nil
		})
	})
	w.follow(r)
	key := w.publish(1)
	select {
	case <-inside:
	case <-w.ctx.Done():
		t.Fatal("the engine was not asked")
	}
	var last time.Time
	for renewed := 0; renewed < 30; { // three times as long as it lasts
		s, listed := w.statusOf("receiver")
		switch {
		case !listed:
			t.Fatal("the receiver is not listed while it waits")
		case s.StageState != "applying" && s.StageState != "staged":
			t.Fatalf("it says %q", s.StageState)
		case s.Updated.After(last):
			last, renewed = s.Updated, renewed+1
		}
		if w.ctx.Err() != nil {
			t.Fatal("the status is not renewed")
		}
	}
	close(goOn)
	w.eventually("it serves", func() bool { s, _ := w.statusOf("receiver"); return s.Serving == key })
}

// TestAStatusIsKeptBeforeThereIsAReceiver: whoever waits for an engine to tell what it needs is listed, and says so.
func TestAStatusIsKeptBeforeThereIsAReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	ctx, stop := context.WithCancel(w.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		KeepStatus(ctx, w.control, messages.Status{Role: messages.RoleReceiver, Name: "early", StageState: "waiting"}, w.log)
	}()
	w.eventually("it is listed", func() bool {
		s, listed := w.statusOf("early")
		return listed && s.StageState == "waiting" && !s.Updated.IsZero()
	})
	stop()
	<-ended
}
