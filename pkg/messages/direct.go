package messages

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// Direct gets are answered by whichever replica the servers hand the request to. One
// that is frozen (stopped, or waiting for its disk) is handed requests like any other for
// as long as the others' connections to it stay open, which is minutes: of three
// servers it loses a third of all reads, of two that are left beside it a half. So a
// read that nobody begins to answer is asked for again, and the first answer counts. It
// costs nothing but time to ask twice: reads change nothing.

// maxAsks bounds how often one read is asked for, all of whose answers may be under way
// at once.
const maxAsks = 8

// hedgeAfter is the part of OpTimeout after which a read that nobody has begun to answer is
// asked for again; twice as long after each. A replica begins within milliseconds, so
// that nothing is asked for twice on a calm day, and when a thousand receivers read at once
// the doubling keeps them from asking for much more than they would anyway. Once a read
// was answered only when it was asked for again, for a while the next ones wait less.
const (
	hedgeAfter      = 8
	hedgeAfterLossy = 32
	lossyFor        = 10 * time.Second
)

// patience is how long to wait for the first message of an answer.
func (c *Control) patience() time.Duration {
	if int64(c.now()) < c.lossyUntil.Load() {
		return c.cfg.OpTimeout / hedgeAfterLossy
	}
	return c.cfg.OpTimeout / hedgeAfter
}

// asking is one direct get and all requests that were made for it.
type asking struct {
	c       *Control
	subject string
	query   []byte
	each    func(*stored)
	open    []*batch    // every request that was made, to be ended
	failed  int         // of those how many were answered with an error
	done    chan *batch // answers that are complete
	came    int64       // messages of all answers, when it was last looked
}

// batch makes one direct get that is answered by several messages and an end mark.
// After an error it returns no messages. What each has to do with them is done when it
// returns; it may be given messages that are not returned, and some twice.
func (c *Control) batch(ctx context.Context, stream string, query getQuery, each func(*stored)) ([]*stored, error) {
	a := &asking{c: c, subject: "$JS.API.DIRECT.GET." + stream, each: each, done: make(chan *batch, maxAsks)}
	ctx, stop := c.denials.watch(ctx, a.subject, 4*c.cfg.OpTimeout)
	defer stop()
	var err error
	if a.query, err = json.Marshal(query); err != nil {
		return nil, err
	}
	msgs, err := a.await(ctx)
	// Not to have been answered at all may be the subscription's fault; not to have been
	// waited for is not.
	late := errors.Is(err, ErrPermission) || errors.Is(ctx.Err(), context.DeadlineExceeded)
	for _, b := range a.open {
		c.batches.end(b, late)
	}
	return msgs, err
}

// await asks, again and again where nothing comes, until one answer is complete.
func (a *asking) await(ctx context.Context) ([]*stored, error) {
	if err := a.ask(); err != nil {
		return nil, err
	}
	patience := a.c.patience()
	hedge := time.NewTimer(patience)
	defer hedge.Stop()
	for {
		select {
		case b := <-a.done:
			if b.err == nil {
				if b != a.open[0] && a.open[0].came.Load() == 0 {
					a.c.lossyUntil.Store(int64(a.c.now() + lossyFor))
				}
				b.work.Wait()
				return b.msgs, nil
			}
			// Another replica may know better, if one was asked.
			if a.failed++; a.failed == len(a.open) {
				return nil, b.err
			}
		case <-hedge.C:
			if a.stuck() && len(a.open) < maxAsks {
				if err := a.ask(); err != nil {
					return nil, err
				}
				patience *= 2
			}
			hedge.Reset(patience)
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, ErrPermission) {
				return nil, cause
			}
			return nil, ctx.Err()
		}
	}
}

// ask makes one more request.
func (a *asking) ask() error {
	b, err := a.c.batches.begin(a.c.nc, a.each, a.done)
	if err != nil {
		return err
	}
	a.open = append(a.open, b)
	return a.c.nc.PublishMsg(&nats.Msg{Subject: a.subject, Reply: b.inbox, Data: a.query})
}

// stuck says whether no message has come since it was last asked: a long answer that is
// on its way is not asked for again.
func (a *asking) stuck() bool {
	before := a.came
	a.came = 0
	for _, b := range a.open {
		a.came += b.came.Load()
	}
	return a.came == before
}
