package simulator

import (
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// machine is what a lane runs.
type machine interface {
	Step(protocol.Result) protocol.Intent
}

// lane is one thread of one process: at most one machine, and at most one intent of it
// under way.
type lane struct {
	name  string
	clock clock
	// perform may change an intent on its way, or where it is read; mutations do.
	perform func(in protocol.Intent) (protocol.Intent, bool)

	m       machine
	then    func(error) // what the process does when the machine has ended
	request *request    // under way
	wakeAt  time.Duration
	waiting bool
	pause   func() // set instead of m: what to do at wakeAt
}

// clock is a process's monotonic clock: it runs a little fast or slow.
type clock struct {
	offset time.Duration
	drift  int64 // thousandths
}

func (c clock) at(now time.Duration) time.Duration {
	return c.offset + now + now*time.Duration(c.drift)/1000
}

// request is an intent on its way to the store and back.
type request struct {
	from    *lane // nil: nobody waits for the answer any more
	intent  protocol.Intent
	replica int
	sent    time.Duration
	applied bool
	result  protocol.Result
	owner   string // for the transcript
}

// run starts a machine on the lane.
func (w *world) run(l *lane, m machine, then func(error)) {
	l.m, l.then = m, then
	w.step(l, protocol.Result{})
}

// sleep lets time pass on the lane.
func (w *world) sleep(l *lane, d time.Duration, then func()) {
	l.m, l.pause, l.waiting, l.wakeAt = nil, then, true, w.now+d
}

// step gives a result to the lane's machine and sends what it wants.
func (w *world) step(l *lane, r protocol.Result) {
	r.Now = l.clock.at(w.now)
	in := l.m.Step(r)
	switch in.Verb {
	case protocol.Done, protocol.Fail:
		then := l.then
		l.m, l.then = nil, nil
		if in.Verb == protocol.Done {
			in.Err = nil
		}
		then(in.Err)
		return
	case protocol.Wait:
		l.waiting, l.wakeAt = true, w.now+in.Delay
		return
	}
	req := &request{from: l, intent: in, sent: w.now, owner: l.name}
	if in.Verb == protocol.Read {
		req.replica = int(w.choose.pick(3))
	}
	if l.perform != nil {
		var follower bool
		if req.intent, follower = l.perform(in); follower {
			req.replica = 1 + int(w.choose.pick(2))
		}
	}
	l.request = req
	w.requests = append(w.requests, req)
}

// wake continues a lane whose time has come.
func (w *world) wake(l *lane) {
	l.waiting = false
	if l.pause != nil {
		then := l.pause
		l.pause = nil
		then()
		return
	}
	w.step(l, protocol.Result{Outcome: protocol.OK})
}

// crash forgets all that a lane was doing. What it has sent goes on alone.
func (w *world) crash(l *lane) {
	if l.request != nil {
		l.request.from = nil
	}
	l.m, l.then, l.pause, l.request, l.waiting = nil, nil, nil, nil, false
}
