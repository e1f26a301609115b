package refit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

func TestVersionsAppliedAtOnceNeverGoBackwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	entered, second, leave := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := w.receiver(func(c *ReceiverConfig) {
		c.Installer = InstallerFunc(func(_ context.Context, in Installation) (Report, error) {
			if in.Key.Version == 1 {
				close(entered)
				<-leave
			} else {
				close(second)
			}
			return Report{}, nil
		})
	})
	one, err1 := r.Stage(w.ctx, w.publish(1))
	two, err2 := r.Stage(w.ctx, w.publish(2))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	go func() { results <- r.Apply(w.ctx, one) }()
	<-entered
	go func() { results <- r.Apply(w.ctx, two) }()
	select {
	case <-second:
		t.Error("a version was installed while another was")
	case <-time.After(100 * time.Millisecond): // long enough to catch it mostly; the right code never gets there
	}
	close(leave)
	if err := errors.Join(<-results, <-results); err != nil {
		t.Error(err)
	}
	w.serves(r, 2)
}

func TestTheEngineGoesBackWhenTheNameCannotBeFlipped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	var engine messages.Key
	r := w.receiver(func(c *ReceiverConfig) {
		c.Installer = InstallerFunc(func(_ context.Context, in Installation) (Report, error) { engine = in.Key; return Report{}, nil })
	})
	w.refit(r, w.publish(1))
	inTheWay := filepath.Join(r.ArenaRoot(), "current.next", "file")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := r.Stage(w.ctx, w.publish(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(w.ctx, s); ClassOf(err) != InstallRefused {
		t.Errorf("class %s: %v", ClassOf(err), err)
	}
	if engine.Version != 1 {
		t.Errorf("the engine is on %s, by name 1 serves", engine)
	}
	w.serves(r, 1)
}

// TestTheNextVersionIsStagedWhileOneIsStagedAndApplied: with two arenas there is no room for that, and it is said; with three
// there is.
func TestTheNextVersionIsStagedWhileOneIsStagedAndApplied(t *testing.T) {
	t.Parallel()
	for _, arenas := range []int{2, 3} {
		w := newWorld(t, worldOptions{ranks: 1, slots: 4})
		inside, leave := make(chan struct{}), make(chan struct{})
		r := w.receiver(func(c *ReceiverConfig) {
			c.Arenas = arenas
			c.Installer = InstallerFunc(func(_ context.Context, in Installation) (Report, error) {
				if in.Key.Version == 2 {
					close(inside)
					<-leave
				}
				return Report{}, nil
			})
		})
		w.refit(r, w.publish(1))
		two, err := r.Stage(w.ctx, w.publish(2))
		if err != nil {
			t.Fatal(err)
		}
		applied := make(chan error, 1)
		go func() { applied <- r.Apply(w.ctx, two) }()
		<-inside
		three, err := r.Stage(w.ctx, w.publish(3))
		switch {
		case arenas == 2 && (ClassOf(err) != NoRoom || !errors.Is(err, arena.ErrNoSlot)):
			t.Errorf("with two arenas, class %s: %v", ClassOf(err), err)
		case arenas == 3 && err != nil:
			t.Error(err)
		}
		w.serves(r, 1)
		close(leave)
		if err := <-applied; err != nil {
			t.Fatal(err)
		}
		w.serves(r, 2)
		if arenas == 3 {
			if err := r.Apply(w.ctx, three); err != nil {
				t.Fatal(err)
			}
			w.serves(r, 3)
			w.refit(r, w.publish(4)) // and round again
			w.serves(r, 4)
		}
	}
}

func TestNothingIsAppliedAfterClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	installs := 0
	r := w.receiver(func(c *ReceiverConfig) {
		c.Installer = InstallerFunc(func(context.Context, Installation) (Report, error) { installs++; return Report{}, nil })
	})
	w.refit(r, w.publish(1))
	s, err := r.Stage(w.ctx, w.publish(2))
	if err == nil {
		err = r.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(w.ctx, s); !errors.Is(err, ErrClosed) {
		t.Errorf("apply after close: %v", err)
	}
	if _, err := r.Stage(w.ctx, w.ranks[0].Key(2)); !errors.Is(err, ErrClosed) {
		t.Errorf("stage after close: %v", err)
	}
	if installs != 1 {
		t.Errorf("%d installations, want 1", installs)
	}
	w.serves(r, 1)
}

func TestCloseIsRefusedUnderAStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	stalled := make(chan struct{}, 8)
	r := w.faulty(rdmatest.Fault{Kind: rdmatest.Stall, Rank: 0, Injected: func(int, rdma.Segment, int64) { stalled <- struct{}{} }})
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	result := make(chan error, 1)
	key := w.publish(1)
	go func() {
		_, err := r.Stage(ctx, key)
		result <- err
	}()
	<-stalled
	if err := r.Close(); !errors.Is(err, ErrInUse) {
		t.Errorf("close under a stage: %v", err)
	}
	cancel()
	if err := <-result; ClassOf(err) != Cancelled {
		t.Errorf("class %s: %v", ClassOf(err), err)
	}
}

func TestAPanicInTheInstallerGivesTheArenaBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	defect := true
	r := w.receiver(func(c *ReceiverConfig) {
		c.Installer = InstallerFunc(func(context.Context, Installation) (Report, error) {
			if defect {
				panic("defect")
			}
			return Report{}, nil
		})
	})
	key := w.publish(1)
	for range 3 {
		s, err := r.Stage(w.ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = r.Apply(w.ctx, s)
		}()
		w.servesNothing(r)
	}
	defect = false
	w.refit(r, key)
	w.serves(r, 1)
}

func TestAReleasedVersionIsNotShownAsStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	r := w.receiver(nil)
	s, err := r.Stage(w.ctx, w.publish(1))
	if err != nil {
		t.Fatal(err)
	}
	r.Release(s)
	if st := r.Status(); !st.Staging.IsZero() || st.StageState != "" {
		t.Errorf("status after release: staging %v, state %q", st.Staging, st.StageState)
	}
}

func TestWhatAnotherModelServedDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	root := filepath.Join(t.TempDir(), "arenas")
	other := w.receiver(func(c *ReceiverConfig) { c.ArenaRoot, c.Model = root, "tests/another" })
	w.refit(other, w.publish(9))
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	r := w.receiver(func(c *ReceiverConfig) { c.ArenaRoot = root })
	if got := r.Serving(); !got.IsZero() {
		t.Errorf("serves %s of another model", got)
	}
	w.refit(r, w.publish(4))
	w.serves(r, 4)
}
