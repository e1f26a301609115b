package refit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// Back-off of Follow between attempts at the same version.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Follow stages and applies each newest committed version until ctx ends: the latest wins, and versions that were
// superseded unseen are named in the status. A version that failed is tried again, as its failure's policy says, while
// it is the newest. Follow returns an error only if versions can't be watched at all; otherwise nil when ctx has ended,
// with the old version in place if a stage was under way. With Every, it takes each version in turn, and a later one only
// when the one before was applied or can't be; an operator's order to go back goes before all of them.
func (r *Receiver) Follow(ctx context.Context) error {
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	announced, err := r.cfg.Control.WatchWith(watchCtx, messages.WatchOptions{
		Every: r.cfg.Every, After: r.Serving(), Again: r.isDistrusted(), Stranded: r.noteStranded,
	})
	if err != nil {
		return fmt.Errorf("follow %s: %w", r.cfg.Model, err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.publishStatus(watchCtx) })
	wg.Go(func() { r.restoreEngine(watchCtx) })
	defer stop()
	return r.follow(ctx, announced)
}

func (r *Receiver) follow(ctx context.Context, announced <-chan messages.Announcement) error {
	var again <-chan time.Time
	var latest messages.Announcement
	var queue []messages.Announcement // with Every: what has come after latest, which is tried again first
	delay := firstRetry
	for {
		var turn <-chan struct{}
		if again == nil && len(queue) > 0 {
			turn = atOnce
		}
		select {
		case <-ctx.Done():
			return nil
		case a, open := <-announced:
			if !open {
				return nil
			}
			r.cfg.Metrics.Newest(r.cfg.Model, a.Key.Run, a.Key.Version)
			r.noteSkipped(a.Skipped)
			if a.Rollback == nil && r.cfg.Every && (again != nil || len(queue) > 0) {
				queue = append(queue, a)
				continue
			}
			r.noteSkipped(keysOf(queue)) // an operator's order goes before them, and before what is tried again
			latest, queue, delay = a, nil, firstRetry
		case <-turn:
			latest, queue, delay = queue[0], queue[1:], firstRetry
		case <-again:
			delay = min(2*delay, lastRetry)
		}
		again = nil
		if err := r.take(ctx, latest); err != nil && PolicyFor(ClassOf(err)).Again {
			again = time.After(delay)
		}
	}
}

// atOnce is ready always.
var atOnce = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

func keysOf(list []messages.Announcement) []messages.Key {
	keys := make([]messages.Key, len(list))
	for i := range list {
		keys[i] = list[i].Key
	}
	return keys
}

// take stages and applies an announced version, unless it serves already.
func (r *Receiver) take(ctx context.Context, a messages.Announcement) error {
	serving := r.Serving()
	if a.Key == serving && !r.isDistrusted() || a.Rollback == nil && a.Key.Less(serving) {
		return nil
	}
	staged, err := r.begin(a.Remote(ctx), &Staged{r: r, key: a.Key, order: a.Rollback, skips: a.Skipped})
	if err != nil {
		return err
	}
	return r.Apply(ctx, staged)
}
