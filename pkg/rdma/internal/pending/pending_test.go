package pending

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

func memory(t *testing.T) *rdma.Memory {
	t.Helper()
	m, err := rdma.Alloc(1<<20, rdma.AllocOptions{Backing: rdma.Anonymous, Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func transfer(t *testing.T, set *Set, m *rdma.Memory, parts int) *Transfer {
	t.Helper()
	tr, err := New(set, "test", 1, m, parts, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestEndsWithItsLastPartAndHoldsUntilThen(t *testing.T) {
	t.Parallel()
	m := memory(t)
	var set Set
	tr := transfer(t, &set, m, 3)
	first, second := errors.New("first"), errors.New("second")
	for _, err := range []error{nil, first, second} {
		if m.Holds() != 1 {
			t.Fatalf("%d holds", m.Holds())
		}
		tr.Done(err)
	}
	if err := tr.Wait(t.Context()); !errors.Is(err, first) || errors.Is(err, second) {
		t.Errorf("wait: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tr.Wait(ended); !errors.Is(err, first) {
		t.Errorf("an ended transfer under an ended context: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func TestEndOfAContextIsNoTerminalState(t *testing.T) {
	t.Parallel()
	m := memory(t)
	var set Set
	tr := transfer(t, &set, m, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if err := tr.Wait(ctx); !errors.Is(err, cause) || rdma.KindOf(err) != 0 {
		t.Errorf("wait: %v", err)
	}
	tr.Done(nil)
	if err := tr.Wait(t.Context()); err != nil {
		t.Errorf("wait again: %v", err)
	}
}

func TestAbortIsToldOnceAndAwaited(t *testing.T) {
	t.Parallel()
	m := memory(t)
	var set Set
	told := 0
	tr, err := New(&set, "test", 1, m, 1, func(*Transfer) { told++ })
	if err != nil {
		t.Fatal(err)
	}
	tr.Abort()
	tr.Abort()
	if told != 1 || !errors.Is(tr.Err(), rdma.ErrAborted) || m.Holds() != 1 {
		t.Errorf("told %d times, %v, %d holds", told, tr.Err(), m.Holds())
	}
	tr.Done(tr.Err())
	if err := tr.Wait(t.Context()); !errors.Is(err, rdma.ErrAborted) {
		t.Errorf("wait: %v", err)
	}
}

func TestQuarantineTellsAndKeepsTheHoldUntilTheEnd(t *testing.T) {
	t.Parallel()
	m := memory(t)
	var set Set
	tr := transfer(t, &set, m, 2)
	tr.Done(nil)
	tr.Quarantine(errors.New("stuck"))
	if err := tr.Wait(t.Context()); !errors.Is(err, rdma.ErrQuarantined) || m.Holds() != 1 {
		t.Fatalf("wait: %v, %d holds", err, m.Holds())
	}
	if left := set.CloseAll(); len(left) != 0 {
		t.Errorf("the set still follows %d", len(left))
	}
	tr.Done(nil)
	if err := tr.Wait(t.Context()); !errors.Is(err, rdma.ErrQuarantined) || m.Holds() != 0 {
		t.Errorf("after the end: %v, %d holds", err, m.Holds())
	}
	fine := transfer(t, new(Set), m, 1)
	fine.Done(nil)
	fine.Quarantine(errors.New("too late"))
	if err := fine.Wait(t.Context()); err == nil {
		return
	}
	t.Error("a transfer that had ended was quarantined")
}

func TestVerdictAndCeilingJudgeWhatWentWell(t *testing.T) {
	t.Parallel()
	m := memory(t)
	var set Set
	no := errors.New("stale after all")
	tr := transfer(t, &set, m, 1)
	tr.SetVerdict(func() error { return no })
	tr.Done(nil)
	if err := tr.Wait(t.Context()); !errors.Is(err, no) {
		t.Errorf("verdict: %v", err)
	}
	fast := transfer(t, &set, m, 1)
	fast.SetCeiling(1<<40, 1)
	fast.Done(nil)
	if err := fast.Wait(t.Context()); !errors.Is(err, rdma.ErrFalseCompletion) {
		t.Errorf("ceiling: %v", err)
	}
	failed := transfer(t, &set, m, 1)
	failed.SetVerdict(func() error { t.Error("a failed transfer was judged"); return nil })
	failed.Done(no)
}

func TestClosedSetRefusesAndAbortsWhatLives(t *testing.T) {
	t.Parallel()
	m := memory(t)
	var set Set
	live := []*Transfer{transfer(t, &set, m, 1), transfer(t, &set, m, 1)}
	var wg sync.WaitGroup
	for _, tr := range live {
		wg.Go(func() {
			select {
			case <-tr.Aborted():
				tr.Done(tr.Err())
			case <-time.After(20 * time.Second):
				t.Error("not aborted")
			}
		})
	}
	for _, tr := range set.CloseAll() {
		<-tr.Finished()
	}
	wg.Wait()
	if _, err := New(&set, "test", 1, m, 1, nil); !errors.Is(err, rdma.ErrRefused) || m.Holds() != 0 {
		t.Errorf("new transfer: %v, %d holds", err, m.Holds())
	}
}

// A part is told of once, by the last of its jobs, and no part of a transfer that has failed.
func TestPartsAreToldOfOnce(t *testing.T) {
	t.Parallel()
	m := memory(t)
	var set Set
	tr := transfer(t, &set, m, 4)
	var told []int
	no := errors.New("wrong")
	tr.SetParts([]int32{2, 1, 1}, func(part int) error {
		if told = append(told, part); part == 1 {
			return no
		}
		return nil
	})
	tr.DoneOf(0, nil)
	if len(told) != 0 {
		t.Errorf("told of parts %v before their last jobs", told)
	}
	tr.DoneOf(0, nil)
	tr.DoneOf(1, nil)
	tr.DoneOf(2, nil) // after the failure
	if len(told) != 2 || told[0] != 0 || told[1] != 1 {
		t.Errorf("told of parts %v, want 0 and 1", told)
	}
	if err := tr.Wait(t.Context()); !errors.Is(err, no) {
		t.Errorf("what was found wrong is forgotten: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
