package nixl

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/nixlsys"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/pending"
)

// reader is a reading agent with the goroutine that polls its requests.
type reader struct {
	*agent
	stall  time.Duration
	quarry *quarantine

	poll   sync.Mutex
	wake   *sync.Cond
	live   []*request
	ending bool
	stop   chan struct{} // closed when ending is set
	done   chan struct{}
	ends   sync.WaitGroup // of requests that are being finished
}

// request is one posted part of a transfer.
type request struct {
	handle nixlsys.Request
	t      *pending.Transfer
	posted time.Time
	nbytes int64
	given  bool                 // up, and in quarantine
	ended  func(nixlsys.Status) // called once
	frozen func()               // called once, when it is given up
}

func newReader(a *agent, q *quarantine, stall time.Duration) *reader {
	r := &reader{agent: a, quarry: q, stall: stall, stop: make(chan struct{}), done: make(chan struct{})}
	r.wake = sync.NewCond(&r.poll)
	go r.run()
	return r
}

// load counts peers, -1 while a call is stuck.
func (r *reader) load() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stuck > 0 {
		return -1
	}
	return r.peers
}

func (r *reader) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers++
}

func (r *reader) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers--
}

// introduce loads a remote agent. When ctx ends first, the call is left behind and the agent gets no new peers until
// it comes back.
func (r *reader) introduce(ctx context.Context, name string, md []byte) error {
	result := make(chan error)
	go func() {
		err := r.agent.load(name, md)
		select {
		case result <- err:
		case <-ctx.Done():
			r.back(name, err)
		}
	}()
	select {
	case err := <-result:
		if err != nil {
			return fail("load metadata", -1, rdma.ErrUnreachable, err)
		}
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		r.stuck++
		r.mu.Unlock()
		return fail("load metadata", -1, rdma.ErrTimeout, context.Cause(ctx))
	}
}

// back ends a call that nobody waits for any more.
func (r *reader) back(name string, err error) {
	if err == nil {
		_ = r.unload(name) // a remote that stays known costs a little memory and harms nobody
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck--
}

// follow polls a request from now on.
func (r *reader) follow(q *request) {
	r.poll.Lock()
	defer r.poll.Unlock()
	r.live = append(r.live, q)
	r.wake.Signal()
}

// Polling begins hot, because short reads end within microseconds, and cools down to a bounded pace.
const (
	hotPolls  = 64
	firstNap  = 20 * time.Microsecond
	longNap   = time.Millisecond
	frozenNap = 50 * time.Millisecond // when all that is left is in quarantine
)

// run polls until the reader closes. It sleeps without polling while nothing is in flight.
func (r *reader) run() {
	defer close(r.done)
	cold, nap := 0, firstNap
	for {
		live, ok := r.snapshot()
		if !ok {
			return
		}
		ended, frozen := r.pollOnce(live)
		switch {
		case ended:
			cold, nap = 0, firstNap
		case frozen:
			r.nap(frozenNap)
		case cold < hotPolls:
			cold++
		default:
			r.nap(nap)
			nap = min(2*nap, longNap)
		}
	}
}

// nap waits between polls, or for the end.
func (r *reader) nap(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.stop:
	}
}

func (r *reader) snapshot() ([]*request, bool) {
	r.poll.Lock()
	defer r.poll.Unlock()
	for len(r.live) == 0 && !r.ending {
		r.wake.Wait()
	}
	return append([]*request(nil), r.live...), !r.ending
}

// pollOnce asks for each request once.
func (r *reader) pollOnce(live []*request) (ended, frozen bool) {
	frozen = true
	for _, q := range live {
		st := r.sys.Status(r.handle, q.handle)
		if st != nixlsys.InProgress {
			r.finish(q, st)
			r.drop(q)
			ended = true
			continue
		}
		if !q.given && time.Since(q.posted) > r.stall {
			q.given = true
			r.quarry.add(q)
			q.frozen()
			q.t.Quarantine(errors.New("in progress for longer than " + r.stall.String()))
		}
		frozen = frozen && q.given
	}
	return ended, frozen
}

// finish ends a request apart from the poller.
func (r *reader) finish(q *request, st nixlsys.Status) { r.later(func() { q.ended(st) }) }

// later runs what may take a round trip, such as a transfer's last word.
func (r *reader) later(f func()) { r.ends.Go(f) }

func (r *reader) drop(q *request) {
	r.poll.Lock()
	defer r.poll.Unlock()
	for i := range r.live {
		if r.live[i] == q {
			r.live = append(r.live[:i], r.live[i+1:]...)
			break
		}
	}
	if q.given {
		r.quarry.remove(q)
	}
}

// close ends the poller and the agent. With requests still in flight the agent is left alive: ending it under the card
// that writes would be worse than a leak.
func (r *reader) close() error {
	r.poll.Lock()
	r.ending = true
	close(r.stop)
	left := len(r.live)
	r.wake.Broadcast()
	r.poll.Unlock()
	<-r.done
	r.ends.Wait()
	if left > 0 || r.load() < 0 {
		return nil
	}
	return r.agent.close()
}

// quarantine counts what never ended.
type quarantine struct {
	log    *slog.Logger
	mu     sync.Mutex
	held   map[*request]struct{}
	nbytes int64
}

func (c *quarantine) add(q *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = map[*request]struct{}{}
	}
	c.held[q] = struct{}{}
	c.nbytes += q.nbytes
	c.log.Error("transfer never ended; its destination is in quarantine", "transport", Name, "bytes", q.nbytes, "quarantined", len(c.held))
}

func (c *quarantine) remove(q *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, q)
	c.nbytes -= q.nbytes
}

func (c *quarantine) count() (int, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held), c.nbytes
}
