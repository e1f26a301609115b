package rdma_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

func reset() error { return &rdma.Error{Kind: rdma.ErrReset, Op: "read", Transport: "tcp", Rank: 1} }

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	h := rdma.NewHealth(rdma.HealthConfig{Failures: 2, Cooldown: time.Second, Longest: 3 * time.Second, Now: func() time.Time { return now }})
	allowed := func(want bool) {
		t.Helper()
		if err := h.Allow("a"); (err == nil) != want || err != nil && !errors.Is(err, rdma.ErrSuspect) {
			t.Fatalf("allowed: %v, want %v", err, want)
		}
	}
	allowed(true)
	h.Failed("a", reset())
	allowed(true)
	h.Failed("a", context.Canceled)
	h.Failed("a", &rdma.Error{Kind: rdma.ErrAborted})
	allowed(true)
	h.Failed("a", reset())
	allowed(false)
	for _, cooldown := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		now = now.Add(cooldown - time.Millisecond)
		allowed(false)
		now = now.Add(time.Millisecond)
		allowed(true)  // the probe
		allowed(false) // one at a time
		h.Failed("a", reset())
		allowed(false)
	}
	now = now.Add(time.Minute)
	allowed(true)
	h.Failed("a", context.DeadlineExceeded) // the probe gave up, which says nothing
	allowed(true)
	h.OK("a")
	allowed(true)
	allowed(true)
	if s := h.Snapshot(); len(s) != 0 {
		t.Fatalf("after it went well: %+v", s)
	}
}

func TestSuspectOpensAtOnceAndOthersGoOn(t *testing.T) {
	t.Parallel()
	h := rdma.NewHealth(rdma.HealthConfig{})
	cause := errors.New("tile 3 is corrupt")
	h.Suspect("rank 2", cause)
	if err := h.Allow("rank 2"); !errors.Is(err, rdma.ErrSuspect) || !errors.Is(err, cause) {
		t.Fatalf("got %v", err)
	}
	if err := h.Allow("rank 3"); err != nil {
		t.Fatal(err)
	}
	if s := h.Snapshot(); len(s) != 1 || s[0].Source != "rank 2" || !s[0].Open {
		t.Fatalf("%+v", s)
	}
}

func TestReplaceable(t *testing.T) {
	t.Parallel()
	for k := rdma.ErrUnreachable; k <= rdma.ErrQuarantined; k++ {
		want := k != rdma.ErrAborted && k != rdma.ErrUnavailable && k != rdma.ErrQuarantined
		if got := rdma.Replaceable(&rdma.Error{Kind: k}); got != want {
			t.Errorf("%v: %v", k, got)
		}
	}
}

func TestCostsSurviveTheirFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "costs.json")
	want := []rdma.Cost{{Transport: "tcp", Alpha: 1e-8, Beta: 5e-10}, {Transport: "local", Alpha: 2e-9, Beta: 1e-10}}
	if err := rdma.SaveCosts(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := rdma.LoadCosts(path)
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "{}", `{"format":"drydock.costs.v1","costs":[{"transport":"tcp","alpha_s":-1}]}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := rdma.LoadCosts(path); err == nil {
			t.Errorf("%q gives %+v", bad, c)
		}
	}
}
