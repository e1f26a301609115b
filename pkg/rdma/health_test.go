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

// breaker is a health record on a clock of its own.
type breaker struct {
	*rdma.Health
	t    *testing.T
	now  time.Time
	told []rdma.BreakerState
}

func newBreaker(t *testing.T, cfg rdma.HealthConfig) *breaker {
	b := &breaker{t: t, now: time.Unix(1000, 0)}
	cfg.Now = func() time.Time { return b.now }
	cfg.Changed = func(s rdma.SourceHealth) { b.told = append(b.told, s.State) }
	b.Health = rdma.NewHealth(cfg)
	return b
}

// allowed checks Avoid and Allow, which must agree, for rank 7.
func (b *breaker) allowed(want bool) {
	b.t.Helper()
	if avoid := b.Avoid(7); avoid == want {
		b.t.Fatalf("avoided: %v, want %v", avoid, !want)
	}
	if err := b.Allow(7); (err == nil) != want || err != nil && !errors.Is(err, rdma.ErrSuspect) {
		b.t.Fatalf("allowed: %v, want %v", err, want)
	}
}

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	t.Parallel()
	b := newBreaker(t, rdma.HealthConfig{Failures: 2, Cooldown: time.Second, Longest: 3 * time.Second})
	b.allowed(true)
	b.Report(7, reset())
	b.allowed(true)
	b.Report(7, context.Canceled)
	b.Report(7, &rdma.Error{Kind: rdma.ErrAborted})
	b.allowed(true)
	b.Report(7, context.DeadlineExceeded)
	b.allowed(false)
	for _, cooldown := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		b.now = b.now.Add(cooldown - time.Millisecond)
		b.allowed(false)
		b.now = b.now.Add(time.Millisecond)
		b.allowed(true)  // the probe
		b.allowed(false) // one at a time
		b.Report(7, reset())
		b.allowed(false)
	}
	b.now = b.now.Add(time.Minute)
	b.allowed(true)
	b.Report(7, context.Canceled) // the probe gave up, which says nothing
	b.allowed(true)
	b.Report(7, nil)
	b.allowed(true)
	b.allowed(true)
	if s := b.Failing(); len(s) != 0 {
		t.Fatalf("after it went well: %+v", s)
	}
	if last := b.told[len(b.told)-1]; last != rdma.BreakerClosed || b.told[0] != rdma.BreakerOpen {
		t.Errorf("told of %v", b.told)
	}
}

func TestProbesThatNeverReportAreGivenUp(t *testing.T) {
	t.Parallel()
	b := newBreaker(t, rdma.HealthConfig{Failures: 1, Cooldown: time.Second, Longest: time.Minute})
	b.Report(7, reset())
	b.now = b.now.Add(time.Second)
	b.allowed(true)
	b.now = b.now.Add(59 * time.Second)
	b.allowed(false)
	b.now = b.now.Add(time.Second)
	b.allowed(true)
}

func TestAnotherLifeBeginsAfresh(t *testing.T) {
	t.Parallel()
	b := newBreaker(t, rdma.HealthConfig{Failures: 1})
	b.Meet(7, "one")
	b.Report(7, reset())
	b.Meet(7, "one")
	b.allowed(false)
	b.Meet(7, "two")
	b.allowed(true)
	if b.State(7) != rdma.BreakerClosed || b.State(8) != rdma.BreakerClosed {
		t.Errorf("states %v and %v", b.State(7), b.State(8))
	}
}

func TestSuspectOpensAtOnceAndOthersGoOn(t *testing.T) {
	t.Parallel()
	h := rdma.NewHealth(rdma.HealthConfig{})
	h.Meet(3, "three")
	cause := errors.New("a tile is corrupt")
	h.Suspect(2, cause)
	if err := h.Allow(2); !errors.Is(err, rdma.ErrSuspect) || !errors.Is(err, cause) {
		t.Fatalf("got %v", err)
	}
	if err := h.Allow(3); err != nil {
		t.Fatal(err)
	}
	if s := h.Failing(); len(s) != 1 || s[0].Rank != 2 || s[0].State != rdma.BreakerOpen {
		t.Fatalf("%+v", s)
	}
	if n := h.Counts(); n[rdma.BreakerClosed] != 1 || n[rdma.BreakerOpen] != 1 || len(n) != 3 {
		t.Errorf("counts %v", n)
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
