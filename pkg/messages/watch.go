package messages

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Announcement tells of a committed version that is newer than all before.
type Announcement struct {
	Key      Key
	Manifest *Manifest
	Headers  map[string]string // trace context of the commit
	Skipped  []Key             // versions that were committed and are superseded unseen
}

// Remote returns ctx with the remote span that the announcement carries.
func (a Announcement) Remote(ctx context.Context) context.Context { return remote(ctx, a.Headers) }

// Watch announces the newest committed version now and whenever there is a newer one.
// The channel holds one announcement: a reader that was busy gets the latest, and the
// names of those it missed. It is closed when ctx ends or Control is closed.
func (c *Control) Watch(ctx context.Context) (<-chan Announcement, error) {
	// Subscribe first, then read: what is committed in between wakes us.
	sub, err := c.nc.SubscribeSync(c.subj.notifyAll())
	if err != nil {
		return nil, fmt.Errorf("watch %q: %w", c.cfg.Model, err)
	}
	w := &watcher{c: c, sub: sub, out: make(chan Announcement, 1)}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.background, cancel)
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		defer stop()
		defer cancel()
		defer close(w.out)
		defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
		w.run(ctx)
	}()
	return w.out, nil
}

// watcher reads the newest version over and over: when it is woken, when the
// connection comes back, and every few seconds in any case, since a wake may be lost.
type watcher struct {
	c    *Control
	sub  *nats.Subscription
	out  chan Announcement
	last Key // newest announced
}

func (w *watcher) run(ctx context.Context) {
	status := w.c.nc.StatusChanged(nats.CONNECTED)
	defer w.c.nc.RemoveStatusListener(status)
	hint := Key{}
	for ctx.Err() == nil {
		w.look(ctx, hint)
		hint = w.sleep(ctx, status)
	}
}

// sleep waits for a reason to look again, and returns the version that was named in it.
func (w *watcher) sleep(ctx context.Context, status <-chan nats.Status) Key {
	ctx, cancel := context.WithTimeout(ctx, w.c.cfg.Poll)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-status:
			cancel()
		case <-stop:
		}
	}()
	m, err := w.sub.NextMsgWithContext(ctx)
	if err != nil {
		return Key{}
	}
	hint := w.hint(m.Subject)
	// More may have come meanwhile; one look serves all.
	for {
		m, err := w.sub.NextMsg(time.Microsecond)
		if err != nil {
			return hint
		}
		if k := w.hint(m.Subject); hint.Less(k) {
			hint = k
		}
	}
}

func (w *watcher) hint(subject string) Key {
	prefix := "refit-notify." + w.c.subj.token + "."
	if len(subject) <= len(prefix) {
		return Key{}
	}
	k, err := ParseKey(subject[len(prefix):])
	if err != nil {
		return Key{}
	}
	return k
}

// look reads the commits, and announces the newest if it is new. When a hint names a
// version that the replica does not show yet it looks again for a while.
func (w *watcher) look(ctx context.Context, hint Key) {
	began := w.c.now()
	for {
		list, err := w.c.commits(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.c.log.Debug("could not read the newest version", "error", err)
			}
			return
		}
		w.announce(ctx, list)
		lagging := w.last.Less(hint) && !slices.ContainsFunc(list, func(v Committed) bool { return v.Key == hint })
		if !lagging || w.c.now()-began > protocol.AskLeaderAfter {
			return
		}
		pause(ctx, lagDelay)
		if ctx.Err() != nil {
			return
		}
	}
}

func (w *watcher) announce(ctx context.Context, list []Committed) {
	newest := newestOf(list, 0)
	if newest == nil || !w.last.Less(newest.Key) {
		return
	}
	run, ok, err := w.c.Run(ctx)
	if err != nil || !ok || run.Run > newest.Key.Run {
		return // fenced, or not known to be current: look again later
	}
	a := Announcement{Key: newest.Key, Manifest: newest.Manifest, Headers: newest.Headers}
	select {
	case unread := <-w.out:
		a.Skipped = append(unread.Skipped, unread.Key)
	default:
	}
	for _, v := range list {
		seen := v.Key.Compare(w.last) <= 0 || v.Key.Compare(newest.Key) >= 0
		if !seen && v.Manifest != nil && !w.last.IsZero() {
			a.Skipped = append(a.Skipped, v.Key)
		}
	}
	w.last = newest.Key
	w.out <- a // there is room: nobody else sends
}

func sortCommitted(list []Committed) {
	slices.SortFunc(list, func(a, b Committed) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Seq, b.Seq))
	})
}
