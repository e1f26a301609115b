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
// when the one before was applied or can't be.
func (r *Receiver) Follow(ctx context.Context) error {
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	announced, err := r.cfg.Control.WatchWith(watchCtx, messages.WatchOptions{Every: r.cfg.Every, After: r.Serving(), Again: r.isDistrusted()})
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
	delay := firstRetry
	for {
		next := announced
		if r.cfg.Every && again != nil {
			next = nil // this one first
		}
		select {
		case <-ctx.Done():
			return nil
		case a, open := <-next:
			if !open {
				return nil
			}
			latest, delay = a, firstRetry
			r.cfg.Metrics.Newest(r.cfg.Model, a.Key.Run, a.Key.Version)
			r.noteSkipped(a.Skipped)
		case <-again:
			delay = min(2*delay, lastRetry)
		}
		again = nil
		if err := r.take(ctx, latest); err != nil && PolicyFor(ClassOf(err)).Again {
			again = time.After(delay)
		}
	}
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
