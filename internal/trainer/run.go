package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// Steps says how many versions are published, and when.
type Steps struct {
	Versions       uint64        // how many; 0: until the context ends
	Interval       time.Duration // pause between versions
	AwaitReceivers int           // receivers that must serve a version before the next; 0: none
	AwaitTimeout   time.Duration // longest wait for them without any of them getting on
	Seed           uint64        // of the changes of values
}

// Trainer publishes the versions of one rank.
type Trainer struct {
	Publisher *refit.Publisher
	Shards    *Shards
	Control   *messages.Control
	Steps     Steps
	Logger    *slog.Logger
}

// Run publishes versions 1, 2, … and then keeps the last ones readable until ctx ends. When ctx ends it withdraws what it
// still serves and waits for the readers, within leave.
func (t *Trainer) Run(ctx context.Context, leave time.Duration) error {
	err := t.steps(ctx)
	if err == nil {
		t.Logger.Info("all versions published; the last ones stay readable until this process is stopped")
		<-ctx.Done()
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leave)
	defer cancel()
	return t.withdraw(last)
}

func (t *Trainer) steps(ctx context.Context) error {
	first, err := t.first(ctx)
	if err != nil {
		return err
	}
	for v := first; t.Steps.Versions == 0 || v <= t.Steps.Versions; v++ {
		if err := t.skippable(ctx, v, t.step(ctx, v)); err != nil {
			return err
		}
		select {
		case <-time.After(t.Steps.Interval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// first is the version after the newest one of this run: a rank that is started again goes on where the others are.
func (t *Trainer) first(ctx context.Context) (uint64, error) {
	newest, found, err := t.Control.Newest(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the newest version: %w", err)
	}
	if !found || newest.Run != t.Publisher.Run().Run {
		return 1, nil
	}
	return newest.Version + 1, nil
}

// skippable turns the errors of versions that can't be completed any more into going on with the next. A rank that was
// started again can't repeat what its earlier life published of a version, since it lies elsewhere now: it ends that
// version by name, and the other ranks hear of it.
func (t *Trainer) skippable(ctx context.Context, version uint64, err error) error {
	key := t.Publisher.Key(version)
	switch {
	case errors.Is(err, messages.ErrAbandoned):
		t.Logger.Warn("version skipped: it was ended by name", "key", key.String(), "error", err)
		return nil
	case errors.Is(err, messages.ErrConflict):
		t.Logger.Warn("version ended by name: an earlier life of this rank published it", "key", key.String())
		return t.Control.Abandon(ctx, key, fmt.Sprintf("rank %d was started again", t.Publisher.Status().Ranks[0]))
	}
	return err
}

// step trains, as it were, and publishes one version.
func (t *Trainer) step(ctx context.Context, version uint64) error {
	mem, err := t.Publisher.Memory(ctx, version)
	if err != nil {
		return err
	}
	start := time.Now()
	t.Shards.Fill(mem.Bytes(), t.Steps.Seed, version)
	t.Logger.Info("filled", "version", version, "bytes", t.Shards.Nbytes(), "took", time.Since(start).Round(time.Microsecond))
	if _, err := t.Publisher.Publish(ctx, version); err != nil {
		return err
	}
	t.Logger.Info("committed", "key", t.Publisher.Key(version).String())
	return t.awaitReceivers(ctx, t.Publisher.Key(version))
}

// pollInterval is how often statuses are read while receivers are waited for.
const pollInterval = 100 * time.Millisecond

// awaitReceivers waits until enough receivers serve a version. The deadline follows progress: it begins anew whenever
// another receiver has got there.
func (t *Trainer) awaitReceivers(ctx context.Context, key messages.Key) error {
	if t.Steps.AwaitReceivers == 0 {
		return nil
	}
	there, since := -1, time.Now()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		statuses, err := t.Control.Statuses(ctx)
		if err != nil {
			return fmt.Errorf("wait for receivers of version %d: %w", key.Version, err)
		}
		n, others := countServing(statuses, key)
		if n >= t.Steps.AwaitReceivers {
			return nil
		}
		if n > there {
			there, since = n, time.Now()
		}
		if time.Since(since) > t.Steps.AwaitTimeout {
			return fmt.Errorf("wait for receivers of run %d version %d: %d of %d serve it after %v without progress; %s",
				key.Run, key.Version, n, t.Steps.AwaitReceivers, t.Steps.AwaitTimeout, others)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// countServing counts the receivers that serve key or something newer, and describes the others.
func countServing(statuses []messages.Status, key messages.Key) (n int, others string) {
	var late []string
	for i := range statuses {
		s := &statuses[i]
		switch {
		case s.Role != messages.RoleReceiver:
		case !s.Serving.Less(key):
			n++
		case s.Failure != nil:
			late = append(late, fmt.Sprintf("%s serves %s and failed: %s", s.Name, s.Serving, s.Failure.Text))
		default:
			late = append(late, fmt.Sprintf("%s serves %s, state %q", s.Name, s.Serving, s.StageState))
		}
	}
	if len(late) == 0 {
		return n, "no other receiver has said anything"
	}
	return n, strings.Join(late, "; ")
}

// withdraw retires every version that is still served.
func (t *Trainer) withdraw(ctx context.Context) error {
	var errs []error
	for _, s := range t.Publisher.Status().Slots {
		if !s.Key.IsZero() {
			errs = append(errs, t.Publisher.Retire(ctx, s.Key.Version))
		}
	}
	return errors.Join(errs...)
}
