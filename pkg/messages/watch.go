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

// Announcement tells which version a receiver should go to next.
type Announcement struct {
	Key      Key
	Manifest *Manifest
	Headers  map[string]string // trace context of the commit
	Skipped  []Key             // versions that were committed and are superseded unseen
	Rollback *Order            // the order that leads backwards; nil: forwards
}

// Remote returns ctx with the remote span that the announcement carries.
func (a Announcement) Remote(ctx context.Context) context.Context { return remote(ctx, a.Headers) }

// WatchOptions says what to watch. Zero is the newest version, whatever it is.
type WatchOptions struct {
	After Key  // only versions after this one: what the receiver serves already
	Again bool // After itself too, while nothing newer stands: what the receiver serves is damaged
	// Every announces each committed version in order, for exact replay. It relies
	// on publishers that keep every version (protocol.Keep).
	Every bool
	// Stranded is told when versions are committed that this receiver must not go to, since
	// it serves a newer one, once for each of them; nil: nobody is. It must not block.
	Stranded func(Stranded)
}

// Watch announces the newest committed version now and whenever there is a newer one.
// The channel holds one announcement: a reader that was busy gets the latest, and the
// names of those it missed. It is closed when ctx ends, or Control or the connection is closed.
func (c *Control) Watch(ctx context.Context) (<-chan Announcement, error) {
	return c.WatchWith(ctx, WatchOptions{})
}

// WatchWith is Watch with options.
func (c *Control) WatchWith(ctx context.Context, opts WatchOptions) (<-chan Announcement, error) {
	// Subscribe first, then read: what is committed in between wakes us.
	sub, err := c.nc.SubscribeSync(c.subj.notifyAll())
	if err != nil {
		return nil, fmt.Errorf("watch %q: %w", c.cfg.Model, err)
	}
	w := &watcher{
		c: c, sub: sub, every: opts.Every, last: opts.After, again: opts.Again, stranded: opts.Stranded, out: make(chan Announcement, 1),
	}
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
	c        *Control
	sub      *nats.Subscription
	out      chan Announcement
	every    bool
	last     Key    // newest announced
	again    bool   // last is to be announced once more
	followed uint64 // sequence of the last order that was announced
	serving  anchor // where last came from, as far as this process has seen it
	stranded func(Stranded)
	told     uint64 // sequence of the commit that stranded was told of last
}

func (w *watcher) run(ctx context.Context) {
	status := w.c.nc.StatusChanged(nats.CONNECTED)
	defer w.c.nc.RemoveStatusListener(status)
	hint := Key{}
	for ctx.Err() == nil && !w.c.nc.IsClosed() {
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
		<-ctx.Done() // an error that comes at once must not make the loop spin
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

// hint is the version that a wake is about; zero when it is about something else.
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

// look reads the commits, and announces what follows from them. When a hint names a
// version that the replica does not show yet it looks again for a while.
func (w *watcher) look(ctx context.Context, hint Key) {
	began := w.c.now()
	for {
		list, err := w.c.commits(ctx)
		if err == nil {
			err = w.announce(ctx, list)
		}
		if err != nil {
			if ctx.Err() == nil {
				w.c.log.Debug("could not read the newest version", "error", err)
			}
			return
		}
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

// announce sends what a receiver that serves w.last should know of list.
func (w *watcher) announce(ctx context.Context, list []Committed) error {
	if newest := newestStanding(list); newest == nil || newest.Key == w.last && !w.serving.differs(newest) && w.followed == 0 && !w.again && !w.mayRollBack(list) {
		return nil // the common poll: nothing can have changed
	}
	run, ok, err := w.c.Run(ctx)
	if err != nil || !ok {
		return err
	}
	order, _, err := w.c.LastOrder(ctx)
	if err != nil {
		return err
	}
	next := choose(list, run.Run, order)
	if next == nil {
		return nil
	}
	foreign := w.foreign(next, run, order)
	again := w.again && next.Key == w.last && !foreign
	if !again && !protocol.MayInstall(w.last, next.Key, order.rollback(), w.followed) && (!foreign || !w.ledInto(next, order)) {
		return w.strand(ctx, next, run, foreign)
	}
	w.serving = anchor{key: next.Key, nonce: run.Nonce, manifest: next.Digest}
	if w.every && w.last.Less(next.Key) {
		return w.announceEvery(ctx, list, run.Run, next.Key, order)
	}
	w.send(list, next, order)
	return nil
}

// mayRollBack says whether an order could lead anywhere: there are older versions.
func (w *watcher) mayRollBack(list []Committed) bool {
	return slices.ContainsFunc(list, func(v Committed) bool { return v.Manifest != nil && v.Key.Less(w.last) })
}

func newestStanding(list []Committed) *Committed {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Manifest != nil {
			return &list[i]
		}
	}
	return nil
}

// send replaces an announcement that nobody has read yet.
func (w *watcher) send(list []Committed, next *Committed, order *Order) {
	a := Announcement{Key: next.Key, Manifest: next.Manifest, Headers: next.Headers}
	if next.Key.Less(w.last) {
		a.Rollback = order
	}
	select {
	case unread := <-w.out:
		a.Skipped = slices.Concat(unread.Skipped, []Key{unread.Key})
	default:
	}
	for _, v := range list {
		seen := v.Key.Compare(w.last) <= 0 || v.Key.Compare(next.Key) >= 0
		if !seen && v.Manifest != nil && !w.last.IsZero() {
			a.Skipped = append(a.Skipped, v.Key)
		}
	}
	if order != nil {
		w.followed = max(w.followed, order.Seq)
	}
	w.last, w.again = next.Key, false
	w.out <- a // there is room: nobody else sends
}

// announceEvery sends all versions up to `to` one by one, waiting for the reader. What an order led back from is not
// gone through again on the way forward: it is named as skipped.
func (w *watcher) announceEvery(ctx context.Context, list []Committed, run uint64, to Key, order *Order) error {
	var skipped []Key
	for i := range list {
		v := &list[i]
		if v.Manifest == nil || v.Key.Run < run || v.Key.Compare(w.last) <= 0 || to.Less(v.Key) {
			continue
		}
		if order != nil && order.To.Less(v.Key) && v.Seq < order.Seq {
			skipped = append(skipped, v.Key)
			continue
		}
		select {
		case w.out <- Announcement{Key: v.Key, Manifest: v.Manifest, Headers: v.Headers, Skipped: skipped}:
			w.last, w.again, skipped = v.Key, false, nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func sortCommitted(list []Committed) {
	slices.SortFunc(list, func(a, b Committed) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Seq, b.Seq))
	})
}
