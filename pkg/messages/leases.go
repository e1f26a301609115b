package messages

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Lease is a receiver's claim that it is reading a version. It renews itself until it
// is released or lost. Check Valid before and after reading bytes: only bytes read
// while it was valid throughout are the version's.
type Lease struct {
	c        *Control
	key      Key
	receiver string
	manifest Digest

	renewal protocol.Renewal // of the renewing goroutine; after done is closed, of Release
	until   atomic.Int64     // the monotonic time at which the lease ends, ns on the control's clock
	cancel  context.CancelFunc
	done    chan struct{} // the renewing goroutine has ended
	lost    chan struct{}
	once    sync.Once
	err     error // before lost is closed
}

// leaseMargin: a holder gives up this fraction of the TTL before the server may.
const leaseMargin = 10

// AcquireLease claims a version for reading. The lease is written first and the commit
// is read again through the leader, so that a collector that withdraws the version at
// the same moment sees the lease, or this call sees that the version is gone.
func (c *Control) AcquireLease(ctx context.Context, key Key, receiver string) (*Lease, error) {
	opCtx, cancel := c.deadline(ctx)
	defer cancel()
	body, err := c.leaseBody(key, receiver)
	if err != nil {
		return nil, fmt.Errorf("acquire a lease on version %s: %w", key, err)
	}
	m := &protocol.Acquire{Key: key, Receiver: receiver, Lease: body, TTL: c.cfg.LeaseTTL, Margin: c.cfg.LeaseTTL / leaseMargin}
	if err := c.drive(opCtx, m); err != nil {
		return nil, fmt.Errorf("acquire a lease on version %s: %w", key, err)
	}
	l := &Lease{
		c: c, key: key, receiver: receiver, manifest: m.Manifest.Body.Digest,
		renewal: protocol.Renewal{
			Key: key, Receiver: receiver, Lease: body, TTL: c.cfg.LeaseTTL, Margin: m.Margin, Seq: m.Seq, Since: m.Since,
		},
		done: make(chan struct{}), lost: make(chan struct{}),
	}
	l.extend()
	var renewCtx context.Context
	renewCtx, l.cancel = context.WithCancel(c.background)
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		defer close(l.done)
		l.renew(renewCtx)
	}()
	return l, nil
}

func (c *Control) leaseBody(key Key, receiver string) (protocol.Body, error) {
	rec := LeaseRecord{Key: key, Receiver: receiver, Host: c.cfg.Host, TTL: c.cfg.LeaseTTL}
	if _, err := rand.Read(rec.Holder[:]); err != nil {
		return protocol.Body{}, fmt.Errorf("make a holder id: %w", err)
	}
	b, err := EncodeLease(&rec)
	return protocol.Body{Class: protocol.ClassLease, Digest: protocol.Sum(b), Bytes: b, Holder: rec.Holder, Owner: receiver}, err
}

// renew steps the renewal machine until the lease is lost or ctx ends.
func (l *Lease) renew(ctx context.Context) {
	for {
		pause(ctx, l.renewal.Due()-l.c.now())
		// The lease's own end bounds the attempts: past it there is nothing to renew.
		until := l.renewal.Since + l.renewal.TTL - l.renewal.Margin
		bounded, cancel := context.WithTimeout(ctx, until-l.c.now())
		err := l.c.drive(bounded, &l.renewal)
		cancel()
		switch {
		case ctx.Err() != nil:
			l.end(fmt.Errorf("lease on version %s was released", l.key))
			return
		case err != nil:
			if !errors.Is(err, ErrLeaseLost) {
				err = fmt.Errorf("%w: %w", ErrLeaseLost, err)
			}
			l.end(fmt.Errorf("renew the lease on version %s: %w", l.key, err))
			return
		}
		l.extend()
	}
}

func (l *Lease) extend() {
	l.until.Store(int64(l.renewal.Since + l.renewal.TTL - l.renewal.Margin))
}

func (l *Lease) end(err error) {
	l.once.Do(func() {
		l.err = err
		l.until.Store(0)
		close(l.lost)
	})
}

// Key is the version that the lease holds.
func (l *Lease) Key() Key { return l.key }

// Lost is closed when the lease is lost or released; Err says which.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Valid says whether the lease holds by this process's monotonic clock, with a margin
// of a tenth of its TTL.
func (l *Lease) Valid() bool { return int64(l.c.now()) < l.until.Load() }

// Err says why the lease ended; nil while it holds.
func (l *Lease) Err() error {
	select {
	case <-l.lost:
		return l.err
	default:
		return nil
	}
}

// Confirm asks the leader whether the version may still be installed: its commit
// stands unchanged and no newer run has fenced its own. It is the last look before apply.
func (l *Lease) Confirm(ctx context.Context) error {
	ctx, cancel := l.c.deadline(ctx)
	defer cancel()
	place := protocol.Place{Kind: protocol.KindCommit, Key: l.key}
	it, err := l.c.readOne(ctx, protocol.Intent{Verb: protocol.ReadLeader, Place: place})
	switch {
	case err != nil:
		return fmt.Errorf("confirm version %s: %w", l.key, err)
	case it == nil:
		return fmt.Errorf("confirm version %s: %w", l.key, ErrRetired)
	case it.Body.Digest != l.manifest:
		return fmt.Errorf("confirm version %s: another message stands in its commit's place: %w", l.key, ErrRetired)
	}
	run, _, err := l.c.lastRun(ctx)
	if err != nil {
		return fmt.Errorf("confirm version %s: %w", l.key, err)
	}
	if run.Run > l.key.Run {
		return fmt.Errorf("confirm version %s: run %d of job %q was taken: %w", l.key, run.Run, run.Job, ErrFenced)
	}
	if !l.Valid() {
		return fmt.Errorf("confirm version %s: %w", l.key, ErrLeaseLost)
	}
	return nil
}

// Release gives the lease back. It may be repeated, and after the lease was lost it
// does nothing.
func (l *Lease) Release(ctx context.Context) error {
	l.cancel()
	<-l.done
	if errors.Is(l.err, ErrLeaseLost) {
		return nil
	}
	ctx, cancel := l.c.deadline(ctx)
	defer cancel()
	release := protocol.Release{Key: l.key, Receiver: l.receiver, Holder: l.renewal.Lease.Holder, Seq: l.renewal.Seq}
	if err := l.c.drive(ctx, &release); err != nil {
		return fmt.Errorf("release the lease on version %s: %w", l.key, err)
	}
	return nil
}
