package refit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// TestRetiringAnOldVersionAgainFreesNothing repeats the withdrawal of version 1 when its slot holds version 3, which is read.
func TestRetiringAnOldVersionAgainFreesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	p := w.ranks[0]
	for v := uint64(1); v <= 3; v++ {
		w.publish(v)
	}
	lease, err := w.control.AcquireLease(w.ctx, p.Key(3), "reader")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Retire(w.ctx, 1); err != nil {
		t.Fatal(err)
	}
	if got := p.Status().Slots[1]; got.Key != p.Key(3) || got.State != "committed" {
		t.Errorf("the slot of version 3 is said to be %+v", got)
	}
	short, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	if _, err := p.Claim(short, 5, 1); !errors.Is(err, messages.ErrHeld) {
		t.Errorf("the memory under a reader of version 3 was handed out: %v", err)
	}
	if err := lease.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAVersionIsNotPublishedOverAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	w.publish(1)
	if _, err := w.ranks[0].Publish(w.ctx, 3); err == nil {
		t.Error("version 3 was published out of the slot that version 1 is served from")
	}
	if _, err := w.ranks[0].Publish(w.ctx, 1); err != nil {
		t.Errorf("the same version again: %v", err)
	}
}

// TestRetireEndsARestorationFirst withdraws a version that the guard is publishing again: it must have ended before the
// memory is free, or the version is announced anew while its bytes change.
func TestRetireEndsARestorationFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	w.publish(1)
	p := w.ranks[0]
	p.stop()
	p.guard.Wait()
	stopped, ended := make(chan struct{}), make(chan struct{})
	p.restoring[1] = &restoration{stop: func() { close(stopped) }, ended: ended}
	retired := make(chan error, 1)
	go func() { retired <- p.Retire(w.ctx, 1) }()
	<-stopped
	select {
	case err := <-retired:
		t.Errorf("withdrawn under a restoration: %v", err)
	default:
	}
	if p.published[1] != nil {
		t.Error("a version that is being withdrawn is guarded")
	}
	close(ended)
	if err := <-retired; err != nil {
		t.Error(err)
	}
}

// TestEvenVersionsAlternateToo publishes every second step: the newest version must stay readable while the next is written.
func TestEvenVersionsAlternateToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	p := w.ranks[0]
	for v := uint64(10); v <= 40; v += 10 {
		if _, err := p.Memory(w.ctx, v); err != nil {
			t.Fatal(err)
		}
		if v > 10 {
			lease, err := w.control.AcquireLease(w.ctx, p.Key(v-10), "reader")
			if err != nil {
				t.Errorf("version %d can't be read while %d is written: %v", v-10, v, err)
			} else if err := lease.Release(w.ctx); err != nil {
				t.Error(err)
			}
		}
		if _, err := p.Publish(w.ctx, v); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClaimTakesOverASlot publishes out of a slot that was named, as after a restart, and refuses slots that don't exist.
func TestClaimTakesOverASlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	p := w.ranks[0]
	mem, err := p.Claim(w.ctx, 1, 0)
	if err != nil || mem != p.cfg.Slots[0] || p.Choose(1) != 0 {
		t.Fatalf("version 1 was given slot %d, error %v; slot 0 was claimed", p.Choose(1), err)
	}
	if _, err := p.Publish(w.ctx, 1); err != nil {
		t.Error(err)
	}
	for _, slot := range []int{-1, 2} {
		if _, err := p.Claim(w.ctx, 2, slot); err == nil {
			t.Errorf("slot %d of 2 was handed out", slot)
		}
	}
}
