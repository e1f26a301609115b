package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/internal/served"
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
	Served         served.Mode   // how the shards lie in served memory; default plain
}

// Trainer publishes the versions of one rank.
type Trainer struct {
	Publisher *refit.Publisher
	Shards    *Shards
	Control   *messages.Control
	Steps     Steps
	Logger    *slog.Logger
}

// Run publishes versions 1, 2, … and then keeps the last ones readable until ctx ends. When ctx ends, or a version failed,
// it withdraws what it still serves and waits for the readers, within leave.
func (t *Trainer) Run(ctx context.Context, leave time.Duration) error {
	err := t.steps(ctx)
	if err == nil {
		t.Logger.Info("all versions published; the last ones stay readable until this process is stopped")
		<-ctx.Done()
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leave)
	defer cancel()
	left := t.withdraw(last)
	if err == nil || errors.Is(err, context.Canceled) {
		return left
	}
	if left != nil {
		t.Logger.Warn("not everything was withdrawn", "error", left)
	}
	return err
}

func (t *Trainer) steps(ctx context.Context) error {
	first, err := t.first(ctx)
	if err != nil {
		return err
	}
	if t.Steps.Versions != 0 && first > t.Steps.Versions {
		t.Logger.Info("nothing to publish: the run has these versions already; another job begins a new run",
			"run", t.Publisher.Run().Run, "job", t.Publisher.Run().Job, "newest", first-1, "versions", t.Steps.Versions)
	}
	for v := first; t.Steps.Versions == 0 || v <= t.Steps.Versions; v++ {
		if err := t.persist(ctx, v); err != nil {
			return err
		}
		if err := wait(ctx, t.Steps.Interval); err != nil {
			return err
		}
	}
	return nil
}

// persist does a version's step, again and again while the server doesn't have the model's stream.
func (t *Trainer) persist(ctx context.Context, version uint64) error {
	for gone := time.Duration(0); ; gone += streamLook {
		err := t.skippable(ctx, version, t.step(ctx, version))
		if !errors.Is(err, messages.ErrNoStream) {
			return err
		}
		if gone%streamSay == 0 {
			t.Logger.Warn("the server has lost the model's stream: tried again when it is there (refitctl init makes it)", "version", version, "error", err)
		}
		if wait(ctx, streamLook) != nil {
			return err
		}
	}
}

// A server that came back without its data is no reason to throw away a trainer: what it holds is put back once somebody
// has made the stream again. Until then a rank tries every streamLook, and says so every streamSay.
const (
	streamLook = time.Second
	streamSay  = 30 * time.Second
)

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// first is the version after the newest one of this run: a rank that is started again goes on where the others are. What
// its earlier life published can't be read any more, so it withdraws it.
func (t *Trainer) first(ctx context.Context) (uint64, error) {
	versions, err := t.Control.Versions(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the newest version: %w", err)
	}
	first, err := t.underWay(ctx)
	if err != nil {
		return 0, err
	}
	for _, v := range versions {
		if v.Key.Run != t.Publisher.Run().Run {
			continue
		}
		first = max(first, v.Key.Version+1)
		if v.Manifest != nil {
			t.withdrawLost(ctx, v.Key)
		}
	}
	return first, nil
}

// underWay is the version that the other ranks are at, which may be past all that are still listed; 1 where they say nothing.
func (t *Trainer) underWay(ctx context.Context) (uint64, error) {
	statuses, err := t.Control.Statuses(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the version that other ranks are at: %w", err)
	}
	at := uint64(1)
	for i := range statuses {
		for _, s := range statuses[i].Slots {
			if s.Key.Run == t.Publisher.Run().Run && s.State == "published" {
				at = max(at, s.Key.Version)
			}
		}
	}
	return at, nil
}

// lostGrace is how long a rank waits for the readers of a version whose bytes it has lost. They can't get on.
const lostGrace = 5 * time.Second

// withdrawLost withdraws a version that an earlier life of this rank served, so that neither receivers nor the other
// ranks stay with it.
func (t *Trainer) withdrawLost(ctx context.Context, key messages.Key) {
	t.Logger.Warn("version withdrawn: an earlier life of this rank held its bytes", "key", key.String())
	bounded, cancel := context.WithTimeout(ctx, lostGrace)
	defer cancel()
	if err := t.Control.Retire(bounded, key, t.rank()); err != nil && ctx.Err() == nil {
		t.Logger.Warn("version withdrawn, but not drained", "key", key.String(), "error", err)
	}
}

func (t *Trainer) rank() int { return t.Shards.Layout().Rank }

// skippable turns the errors of versions that can't be completed any more into going on with the next. A rank that was
// started again can't repeat what its earlier life published of a version, since it lies elsewhere now: it ends that
// version by name, or withdraws it where the other ranks have committed it meanwhile, and they hear of it.
func (t *Trainer) skippable(ctx context.Context, version uint64, err error) error {
	key := t.Publisher.Key(version)
	switch {
	case errors.Is(err, messages.ErrAbandoned), errors.Is(err, messages.ErrRetired):
		t.Logger.Warn("version skipped: it was ended by name", "key", key.String(), "error", err)
		return nil
	case errors.Is(err, messages.ErrConflict):
		t.Logger.Warn("version ended by name: an earlier life of this rank published it", "key", key.String())
		err := t.Control.Abandon(ctx, key, fmt.Sprintf("rank %d was started again", t.rank()))
		if errors.Is(err, messages.ErrConflict) {
			t.withdrawLost(ctx, key)
			return nil
		}
		return err
	}
	return err
}

// step trains, as it were, and publishes one version.
func (t *Trainer) step(ctx context.Context, version uint64) error {
	mem, err := t.Publisher.Memory(ctx, version)
	if err != nil {
		return err
	}
	if err := t.follow(ctx); err != nil {
		return err
	}
	start := time.Now()
	if err := t.Shards.Fill(mem.Bytes(), t.Steps.Seed, version); err != nil {
		return err
	}
	t.Logger.Info("filled", "version", version, "bytes", t.Shards.Nbytes(), "took", time.Since(start).Round(time.Microsecond))
	if _, err := t.Publisher.PublishChange(ctx, version, refit.Change{Layout: t.Shards.Layout()}); err != nil {
		return err
	}
	t.Logger.Info("committed", "key", t.Publisher.Key(version).String())
	return t.awaitReceivers(ctx, t.Publisher.Key(version))
}

// follow lays the shards out anew when receivers ask for something else than they did. Statuses that can't be read are no
// reason for a change, and none to stop.
func (t *Trainer) follow(ctx context.Context) error {
	if t.Steps.Served != served.Auto {
		return nil
	}
	statuses, err := t.Control.Statuses(ctx)
	if err != nil {
		return nil //nolint:nilerr // the next version asks again
	}
	asked := served.AskedBy(statuses)
	if asked.TP == 0 || asked == t.Shards.asked {
		return nil
	}
	if err := t.Shards.Serve(t.Steps.Served, asked); err != nil {
		return fmt.Errorf("lay shards out for tensor-parallel size %d: %w", asked.TP, err)
	}
	t.Logger.Info("shards are laid out anew", "tp", asked.TP, "blocks", t.Shards.shown.Cut())
	return nil
}

// pollInterval is how often statuses are read while receivers are waited for.
const pollInterval = 100 * time.Millisecond

// awaitReceivers waits until enough receivers serve a version, or the version is ended. The deadline follows progress: it
// begins anew whenever another receiver has got there. A server that doesn't answer is no progress, and no end either.
func (t *Trainer) awaitReceivers(ctx context.Context, key messages.Key) error {
	if t.Steps.AwaitReceivers == 0 {
		return nil
	}
	there, since, looked := -1, time.Now(), time.Now()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		n, others := t.countThere(ctx, key)
		if n >= t.Steps.AwaitReceivers {
			return nil
		}
		if n > there {
			there, since = n, time.Now()
		}
		if time.Since(looked) >= lookInterval {
			looked = time.Now()
			if t.ended(ctx, key) {
				t.Logger.Warn("version given up: it was ended while receivers were waited for", "key", key.String(), "receivers", n)
				return nil
			}
		}
		if time.Since(since) > t.Steps.AwaitTimeout {
			return fmt.Errorf("wait for receivers of run %d version %d: %d of %d serve it after %v without progress; %s",
				key.Run, key.Version, there, t.Steps.AwaitReceivers, t.Steps.AwaitTimeout, others)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// countThere counts the receivers that serve a version, and describes the others; -1 where nobody can be asked.
func (t *Trainer) countThere(ctx context.Context, key messages.Key) (n int, others string) {
	statuses, err := t.Control.Statuses(ctx)
	if err != nil {
		return -1, "the statuses can't be read: " + err.Error()
	}
	return countServing(statuses, key)
}

// lookInterval is how often a rank that waits for receivers looks whether there is still something to wait for.
const lookInterval = time.Second

// ended says whether a version was ended by name or withdrawn, by another rank or an operator: nobody will serve it.
func (t *Trainer) ended(ctx context.Context, key messages.Key) bool {
	versions, err := t.Control.Versions(ctx)
	if err != nil {
		return false // the next look tells
	}
	for _, v := range versions {
		if v.Key == key {
			return v.Ended != nil
		}
	}
	return false
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
