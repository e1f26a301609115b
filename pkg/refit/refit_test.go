package refit

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func TestEveryVersionIsServedByteForByte(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 3})
	r := w.receiver(nil)
	for v := uint64(1); v <= 5; v++ {
		stats := w.refit(r, w.publish(v))
		w.serves(r, v)
		if stats.Cold != (v == 1) {
			t.Errorf("version %d: planned anew %t", v, stats.Cold)
		}
		if stats.Brought != stats.Needed || stats.Ranks != 3 {
			t.Errorf("version %d: %+v: every byte once, from three ranks", v, stats)
		}
		if stats.Verified != stats.Brought {
			t.Errorf("version %d: %d of %d bytes verified", v, stats.Verified, stats.Brought)
		}
	}
}

func TestStageTouchesNothingThatServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	w.refit(r, w.publish(1))
	s, err := r.Stage(w.ctx, w.publish(2))
	if err != nil {
		t.Fatal(err)
	}
	w.serves(r, 1)
	r.Release(s)
	r.Release(s)
	w.serves(r, 1)
	if err := r.Apply(w.ctx, s); !errors.Is(err, ErrEnded) {
		t.Fatalf("apply after release: %v", err)
	}
	w.refit(r, w.ranks[0].Key(2))
	w.serves(r, 2)
}

func TestRepeatingAVersionIsHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	key := w.publish(1)
	for range 3 {
		w.refit(r, key)
		w.serves(r, 1)
	}
}

func TestBackwardsOnlyByOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	one, two := w.publish(1), w.publish(2)
	w.refit(r, two)
	_ = w.fails(r, one, Backwards)
	w.serves(r, 2)
	order, err := w.control.Rollback(w.ctx, one, "a test", "to see")
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.StageRollback(w.ctx, order)
	if err == nil {
		err = r.Apply(w.ctx, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.serves(r, 1)
}

func TestAVersionThatDoesNotExistIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	r := w.receiver(nil)
	w.publish(1)
	err := w.fails(r, w.ranks[0].Key(7), Gone)
	if !strings.Contains(err.Error(), "version 7") {
		t.Errorf("the error does not name the version: %v", err)
	}
	w.servesNothing(r)
}

func TestALostSourceWithoutReplicaIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 3})
	r := w.receiver(nil)
	w.refit(r, w.publish(1))
	key := w.publish(2)
	if err := w.ranks[1].cfg.Transports[0].Close(); err != nil {
		t.Fatal(err)
	}
	err := w.fails(r, key, SourceLost)
	if !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("the error does not name rank 1: %v", err)
	}
	w.serves(r, 1)
}

func TestReplicasStandIn(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]rdmatest.Fault{
		"reset":            {Kind: rdmatest.Reset, Rank: 1},
		"corrupt":          {Kind: rdmatest.Corrupt, Rank: 1},
		"cannot connect":   {Kind: rdmatest.Vanish, Rank: 1},
		"false completion": {Kind: rdmatest.FalseCompletion, Rank: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{ranks: 3, replicated: true})
			r := w.faulty(fault)
			stats := w.refit(r, w.publish(1))
			w.serves(r, 1)
			if stats.Retries == 0 {
				t.Errorf("nothing was retried: %+v; was rank 1 read at all?", stats)
			}
		})
	}
}

func TestACorruptByteOnceIsReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.faulty(rdmatest.Fault{Kind: rdmatest.Corrupt, Rank: 0, Count: 1})
	stats := w.refit(r, w.publish(1))
	w.serves(r, 1)
	if stats.Retries != 1 {
		t.Errorf("%d retries, want 1", stats.Retries)
	}
}

func TestACorruptByteForEverIsFoundAndNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	good, bad := w.receiver(nil), w.faulty(rdmatest.Fault{Kind: rdmatest.Corrupt, Rank: 1, Seed: 9})
	key := w.publish(1)
	err := w.fails(bad, key, CorruptTile)
	var tile *TileError
	if !errors.As(err, &tile) || tile.Rank != 1 {
		t.Errorf("the error does not name the tile and rank 1: %v", err)
	}
	w.servesNothing(bad)
	w.refit(good, key)
	w.serves(good, 1)
}

func TestContradictingReplicasAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2, replicated: true})
	r := w.receiver(nil)
	var errs [2]error
	done := make(chan struct{})
	go func() {
		defer close(done)
		errs[1] = publishAs(w.ctx, w.ranks[1], 1, 99)
	}()
	errs[0] = publishAs(w.ctx, w.ranks[0], 1, 1)
	<-done
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	err := w.fails(r, w.ranks[0].Key(1), ReplicaConflict)
	if !strings.Contains(err.Error(), "ranks 0 and 1") {
		t.Errorf("the error does not name both ranks: %v", err)
	}
	w.servesNothing(r)
}

// publishAs publishes a version with the values of another.
func publishAs(ctx context.Context, p *Publisher, version, values uint64) error {
	mem, err := p.Memory(ctx, version)
	if err != nil {
		return err
	}
	fill(mem.Bytes(), p.cfg.Layout, values)
	_, err = p.Publish(ctx, version)
	return err
}

func TestTooLittleVerifiedIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	w.ranks[0].cfg.Layout.Grid = nil // no digests
	r := w.receiver(func(c *ReceiverConfig) { c.VerifyFloor = 0.9 })
	_ = w.fails(r, w.publish(1), Unverified)
	w.servesNothing(r)
}

func TestANarrowingCastIsRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	narrow := func(c *ReceiverConfig) {
		for i := range c.Dests {
			c.Dests[i].Params[2].DType = plan.F8E4M3
		}
	}
	key := w.publish(1)
	err := w.fails(w.receiver(narrow), key, PlanRefused)
	if !strings.Contains(err.Error(), "norm") {
		t.Errorf("the error does not name the parameter: %v", err)
	}
}

func TestCancelledStageLeavesTheOldVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	stalled := make(chan struct{}, 8)
	r := w.faulty(rdmatest.Fault{Kind: rdmatest.Stall, Rank: 0, After: 100, Injected: func(int, rdma.Segment, int64) { stalled <- struct{}{} }})
	w.refit(r, w.publish(1))
	slow := w.faulty(rdmatest.Fault{Kind: rdmatest.Stall, Rank: 0, Injected: func(int, rdma.Segment, int64) { stalled <- struct{}{} }})
	ctx, cancel := context.WithCancel(w.ctx)
	result := make(chan error, 1)
	go func() {
		_, err := slow.Stage(ctx, w.publish(2))
		result <- err
	}()
	<-stalled
	cancel()
	if err := <-result; ClassOf(err) != Cancelled {
		t.Fatalf("class %s: %v", ClassOf(err), err)
	}
	w.servesNothing(slow)
	w.serves(r, 1)
}

func TestAStalledSourceEndsByTheDeadlineAndIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(func(c *ReceiverConfig) {
		c.Transports[0] = rdmatest.Faulty(c.Transports[0], rdmatest.Fault{Kind: rdmatest.Stall, Rank: 1})
		c.Stall = 200_000_000
	})
	err := w.fails(r, w.publish(1), Deadline)
	if !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("the error does not name rank 1: %v", err)
	}
}

func TestTwoStagesAtOnceAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	r := w.receiver(nil)
	r.staged <- struct{}{}
	if _, err := r.Stage(w.ctx, w.publish(1)); !errors.Is(err, ErrBusy) {
		t.Fatalf("got %v", err)
	}
	<-r.staged
}

func TestARefusedInstallLeavesTheOldVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	refuse := false
	var seen []Installation
	r := w.receiver(func(c *ReceiverConfig) {
		c.Installer = InstallerFunc(func(_ context.Context, in Installation) (Report, error) {
			seen = append(seen, in)
			if refuse {
				return Report{}, errors.New("the engine is not ready")
			}
			return Report{}, nil
		})
	})
	w.refit(r, w.publish(1))
	refuse = true
	s, err := r.Stage(w.ctx, w.publish(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(w.ctx, s); ClassOf(err) != InstallRefused {
		t.Fatalf("class %s: %v", ClassOf(err), err)
	}
	w.serves(r, 1)
	refuse = false
	w.refit(r, w.ranks[0].Key(2))
	w.serves(r, 2)
	if last := seen[len(seen)-1]; len(last.Files) != 2 || last.Key.Version != 2 {
		t.Errorf("the installer got %+v", last)
	}
}

func TestAFencedRunIsNotApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	r := w.receiver(nil)
	s, err := r.Stage(w.ctx, w.publish(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.control.TakeRun(w.ctx, "another job", 1); err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(w.ctx, s); ClassOf(err) != Superseded {
		t.Fatalf("class %s: %v", ClassOf(err), err)
	}
	w.servesNothing(r)
}

func TestAPanicInTheInstallerStillReportsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	r := w.receiver(func(c *ReceiverConfig) {
		c.Installer = InstallerFunc(func(context.Context, Installation) (Report, error) { panic("defect") })
	})
	s, err := r.Stage(w.ctx, w.publish(1))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = r.Apply(w.ctx, s)
	}()
	if rec := s.cycle.Finish("applied", nil); rec.Drydock.Outcome != "abandoned" {
		t.Fatalf("the cycle ended as %q", rec.Drydock.Outcome)
	}
	w.servesNothing(r)
}

func TestRestartKeepsWhatServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	root := filepath.Join(t.TempDir(), "arenas")
	at := func(c *ReceiverConfig) { c.ArenaRoot = root }
	first := w.receiver(at)
	w.refit(first, w.publish(1))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again := w.receiver(at)
	w.serves(again, 1)
	w.refit(again, w.publish(2))
	w.serves(again, 2)
}

func TestArenaCarriesItsLabel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	r := w.receiver(nil)
	w.refit(r, w.publish(3))
	f, err := safetensors.Open(filepath.Join(r.ArenaRoot(), "current", "rank-1.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if f.Metadata["drydock.version"] != "3" || f.Metadata["drydock.rank"] != "1" || f.Metadata["drydock.model"] != w.cfg.Model {
		t.Fatalf("labels: %v", f.Metadata)
	}
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	for name, change := range map[string]func(*ReceiverConfig){
		"no control":     func(c *ReceiverConfig) { c.Control = nil },
		"no transports":  func(c *ReceiverConfig) { c.Transports = nil },
		"no name":        func(c *ReceiverConfig) { c.Name = "" },
		"floor above 1":  func(c *ReceiverConfig) { c.VerifyFloor = 1.1 },
		"negative stall": func(c *ReceiverConfig) { c.Stall = -1 },
	} {
		cfg := ReceiverConfig{
			Name: "r", Control: w.control, ArenaRoot: t.TempDir(), Transports: []rdma.Transport{w.net.New(name)},
		}
		cfg.Dests = append(cfg.Dests, destination(0))
		change(&cfg)
		if r, err := NewReceiver(cfg); err == nil {
			_ = r.Close()
			t.Errorf("%s: made", name)
		}
	}
}
