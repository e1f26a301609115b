package refit

import (
	"context"
	"errors"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// restoration is the guard at work on one slot's version.
type restoration struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// setPublished says what a slot has committed. What it had before is not restored any more when this returns.
func (p *Publisher) setPublished(i int, pub *messages.Publication) {
	p.mu.Lock()
	p.published[i] = pub
	under := p.restoring[i]
	p.mu.Unlock()
	if under != nil {
		under.stop()
		<-under.ended
	}
}

// keepStatus renews the status before it expires, until ctx ends.
func (p *Publisher) keepStatus(ctx context.Context) {
	renew := time.NewTicker(statusInterval)
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
			p.putStatus(ctx)
			p.countLeases(ctx)
		}
	}
}

// countLeases tells the metrics how many readers the slots' versions have.
func (p *Publisher) countLeases(ctx context.Context) {
	if p.cfg.Metrics == nil {
		return
	}
	n := 0
	for i := range p.cfg.Slots {
		key := p.slot(i).Key
		if key.IsZero() {
			continue
		}
		holders, err := p.cfg.Control.Holders(ctx, key)
		if err != nil {
			return // the next look tells; an alert on a version that stays pinned is in no hurry
		}
		n += len(holders)
	}
	p.cfg.Metrics.Leases(p.cfg.Model, n)
}

// guardInterval is how often a publisher looks whether the server still has what it committed.
const guardInterval = 3 * time.Second

// keepPublished publishes again what the server has lost, such as after it came back without data, until ctx ends.
func (p *Publisher) keepPublished(ctx context.Context) {
	look := time.NewTicker(guardInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		for i := range p.cfg.Slots {
			p.restore(ctx, i)
		}
	}
}

// restore puts back the version that a slot has committed, if the server does not know it any more.
func (p *Publisher) restore(ctx context.Context, i int) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CommitTimeout)
	defer cancel()
	under := &restoration{stop: cancel, ended: make(chan struct{})}
	p.mu.Lock()
	pub := p.published[i] // looked at now: it may have been withdrawn while another was restored
	p.restoring[i] = under
	p.mu.Unlock()
	if pub != nil {
		err := p.cfg.Control.Restore(ctx, p.run, *pub)
		if err != nil && !errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, messages.ErrRetired) {
			p.cfg.Logger.Warn("committed version can't be checked or restored", "key", pub.Key.String(), "error", err)
		}
	}
	p.mu.Lock()
	p.restoring[i] = nil
	p.mu.Unlock()
	close(under.ended)
}
