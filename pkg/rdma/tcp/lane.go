package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/pending"
)

// lifeline is the part of a connection that a lane needs.
type lifeline = net.Conn

// depth is how many requests a lane has under way: one is answered while the next is already there.
const depth = 2

// aheadBytes bounds a request that is sent before the last one's answer was read: it must fit the kernel's buffers,
// or both sides would wait to write.
const aheadBytes = 32 << 10

// lane is one connection's goroutine. It dials when there is work and no connection, and gives a connection up at the
// first thing that goes wrong on it.
type lane struct {
	p     *peer
	frame []byte
	in    receiver
	used  time.Time // when the connection last did something

	mu       sync.Mutex
	conn     lifeline // nil: none
	inflight []*job   // asked for and not fully answered, in order
	dialing  *pending.Transfer
	undial   context.CancelFunc // ends the dial that is made for dialing
}

// run serves jobs until the peer closes.
func (l *lane) run() {
	defer l.hangUp()
	for {
		j := l.p.next(true)
		if j == nil {
			return
		}
		l.work(j)
	}
}

// work takes j and whatever else is queued to its end, or to the connection's.
func (l *lane) work(j *job) {
	if err := j.t.Err(); err != nil {
		j.t.Done(err)
		return
	}
	if err := l.connect(j.t); err != nil {
		if aborted := j.t.Err(); aborted != nil {
			err = aborted
		}
		j.t.Done(l.readError(err))
		return
	}
	err := l.ask(j)
	for err == nil && len(l.inflight) > 0 {
		if err = l.askAhead(); err == nil {
			err = l.takeAnswer()
		}
	}
	if err != nil {
		l.giveUp(err)
	}
}

// connect makes sure of a connection for a part of t, whose abort ends the dial: a source that is frozen accepts
// connections and says nothing on them.
func (l *lane) connect(t *pending.Transfer) error {
	if l.conn != nil && time.Since(l.used) > l.p.t.cfg.Idle/2 {
		l.hangUp() // the server may be about to, and a request would be lost with it
	}
	if l.conn != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(l.p.ctx)
	defer cancel()
	l.mu.Lock()
	l.dialing, l.undial = t, cancel
	l.mu.Unlock()
	if t.Err() != nil { // the abort may have come before it could find the dial
		cancel()
	}
	c, _, err := l.p.dialer.dial(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialing, l.undial = nil, nil
	if err == nil {
		l.conn, l.used = c, time.Now()
	}
	return err
}

// readError makes a failed dial an error of the read: whoever was there before is gone.
func (l *lane) readError(err error) error {
	if errors.Is(err, rdma.ErrAborted) {
		return err
	}
	kind := rdma.KindOf(err)
	if kind == rdma.ErrUnreachable {
		kind = rdma.ErrReset
	}
	if l.p.ctx.Err() != nil {
		kind = rdma.ErrAborted
	}
	return fail("read", l.p.remote.Rank, kind, err)
}

// ask sends the request of j.
func (l *lane) ask(j *job) error {
	l.encode(j)
	return l.send(j)
}

func (l *lane) encode(j *job) {
	l.frame = appendRequest(append(l.frame[:0], 0, 0, 0, 0), j.id, j.asked())
	binary.LittleEndian.PutUint32(l.frame, uint32(len(l.frame)-4))
}

func (l *lane) send(j *job) error {
	l.mu.Lock()
	l.inflight = append(l.inflight, j)
	l.mu.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(l.p.t.cfg.Stall)); err != nil {
		return err
	}
	_, err := l.conn.Write(l.frame)
	return err
}

// askAhead keeps the connection busy with a second request.
func (l *lane) askAhead() error {
	for len(l.inflight) < depth {
		j := l.p.next(false)
		if j == nil {
			return nil
		}
		if err := j.t.Err(); err != nil {
			j.t.Done(err)
			continue
		}
		if l.encode(j); len(l.frame) > aheadBytes {
			l.p.putBack(j)
			return nil
		}
		if err := l.send(j); err != nil {
			return err
		}
	}
	return nil
}

// takeAnswer receives the answer of the oldest request. A refusal ends that request only.
func (l *lane) takeAnswer() error {
	j := l.inflight[0]
	err := l.in.receive(l.conn, j, l.p.t.cfg.Stall)
	l.used = time.Now()
	var no *refusal
	if err != nil && !errors.As(err, &no) {
		return err
	}
	l.mu.Lock()
	l.inflight = l.inflight[1:]
	l.mu.Unlock()
	select {
	case <-j.t.Aborted(): // too late for this answer; the connection's deadline may lie in the past
		l.in.clock.begin()
	default:
	}
	if no != nil {
		err = j.t.Fail(no.status.kind(), errors.New(no.text))
	}
	if err == nil {
		err = j.found
	}
	j.t.Done(err)
	return nil
}

// giveUp closes the connection and ends what was asked on it. When that was for an abort, the others are asked anew.
func (l *lane) giveUp(err error) {
	l.hangUp()
	l.mu.Lock()
	jobs := l.inflight
	l.inflight = nil
	l.mu.Unlock()
	aborted := false
	for _, j := range jobs {
		aborted = aborted || errors.Is(j.t.Err(), rdma.ErrAborted)
	}
	for i := len(jobs) - 1; i >= 0; i-- {
		switch j := jobs[i]; {
		case j.t.Err() != nil:
			j.t.Done(j.t.Err())
		case aborted:
			j.rest()
			l.p.putBack(j)
		default:
			j.t.Done(l.ioError(j.t, err))
		}
	}
}

func (l *lane) ioError(t *pending.Transfer, err error) error {
	if rdma.KindOf(err) != 0 {
		return err
	}
	kind := kindOf(err, rdma.ErrReset)
	if kind == rdma.ErrTimeout {
		err = fmt.Errorf("nothing came for %v", l.p.t.cfg.Stall)
	}
	return t.Fail(kind, err)
}

func (l *lane) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
	l.in.free()
}

// interrupt makes the lane's next read or write fail if it works on t. The lane renews its deadline first and asks
// for an abort after that, so one of the two is seen.
func (l *lane) interrupt(t *pending.Transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dialing == t {
		l.undial()
	}
	for _, j := range l.inflight {
		if j.t == t && l.conn != nil {
			_ = l.conn.SetDeadline(time.Unix(1, 0))
		}
	}
}

// refusal is a server's no to one request.
type refusal struct {
	status status
	text   string
}

func (r *refusal) Error() string { return r.text }

var errOutOfStep = errors.New("answer out of step with the request")

func readText(r io.Reader, n uint64) (string, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return string(b), err
}
