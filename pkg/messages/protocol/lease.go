package protocol

import "time"

// Acquire writes a receiver's lease on a version and then reads the commit again
// through the leader. Only if the manifest still stands is the version the receiver's
// to read.
type Acquire struct {
	Key      Key
	Receiver string
	Lease    Body
	TTL      time.Duration
	Margin   time.Duration // as in Renewal

	Manifest Item          // after Done
	Seq      uint64        // after Done: of the lease
	Since    time.Duration // after Done: not later than when the write that holds was begun

	state  acquireState
	expect uint64
	err    error
	began  attempts
	again  bool // the first round took longer than the lease's life: only an answer counts now
	retry  backoff
}

type acquireState uint8

const (
	acquireStart acquireState = iota
	acquireWriting
	acquireReading // the lease's place: somebody's, ours, or a marker
	acquireConfirming
	acquireFencing
	acquireReleasing
	acquireWaitWrite
	acquireWaitConfirm
)

// Step takes the answer to the last intent.
func (a *Acquire) Step(r Result) Intent {
	if r.Outcome == Refused {
		return fail(r.Err)
	}
	switch a.state {
	case acquireWriting:
		return a.wrote(r)
	case acquireReading:
		return a.read(r)
	case acquireConfirming:
		return a.confirmed(r)
	case acquireFencing:
		return a.fenced(r)
	case acquireReleasing:
		return fail(a.err)
	case acquireWaitConfirm:
		return a.confirm()
	default:
		return a.write(r.Now)
	}
}

func (a *Acquire) place() Place { return Place{Kind: KindLease, Key: a.Key, Name: a.Receiver} }

func (a *Acquire) write(now time.Duration) Intent {
	a.state = acquireWriting
	a.began.start(now)
	return Intent{Verb: Swap, Place: a.place(), Body: a.Lease, Expect: a.expect, TTL: a.TTL}
}

func (a *Acquire) wrote(r Result) Intent {
	if r.Outcome == OK {
		a.Seq, a.Since = r.Seq, a.began.last
		return a.confirm()
	}
	// A marker, an earlier life's lease, or our own write whose answer was lost.
	a.state = acquireReading
	return Intent{Verb: ReadLeader, Place: a.place()}
}

func (a *Acquire) read(r Result) Intent {
	if r.Outcome == OK {
		a.expect = 0
		if it := r.item(); it != nil {
			a.expect = it.Seq
			// Ours, and of this round: an earlier round's life is nearly over.
			if it.Body.Class == ClassLease && it.Body.Holder == a.Lease.Holder && !a.again {
				a.Seq, a.Since = it.Seq, a.began.first
				return a.confirm()
			}
		}
	}
	a.state = acquireWaitWrite
	return a.retry.wait(retryFirst, retryMost)
}

func (a *Acquire) confirm() Intent {
	a.state = acquireConfirming
	return Intent{Verb: ReadLeader, Place: Place{Kind: KindCommit, Key: a.Key}}
}

func (a *Acquire) confirmed(r Result) Intent {
	if r.Outcome != OK {
		a.state = acquireWaitConfirm
		return a.retry.wait(retryFirst, retryMost)
	}
	if it := r.item(); it == nil {
		a.err = ErrNotCommitted
	} else if a.err = ended(it.Body.Class); a.err == nil {
		if it.Body.Class == ClassManifest {
			a.Manifest = *it
			a.state = acquireFencing
			return Intent{Verb: LastRun}
		}
		a.err = ErrConflict
	}
	return a.release()
}

// fenced ends the acquisition when a newer run exists: its versions are the only ones
// that may still be installed.
func (a *Acquire) fenced(r Result) Intent {
	if r.Outcome != OK {
		a.state = acquireWaitConfirm
		return a.retry.wait(retryFirst, retryMost)
	}
	if it := r.item(); it != nil && it.Place.Key.Run > a.Key.Run {
		a.err = ErrFenced
		return a.release()
	}
	// The confirmation counts only if the lease lived all the while: a collector may
	// have counted the leases after this one expired. Too slow: begin again.
	if r.Now >= a.Since+a.TTL-a.Margin {
		a.state, a.expect, a.again = acquireWaitWrite, a.Seq, true
		return a.retry.wait(retryFirst, retryMost)
	}
	return done()
}

// release leaves no lease behind for a collector to wait for.
func (a *Acquire) release() Intent {
	a.state = acquireReleasing
	return Intent{Verb: Swap, Place: a.place(), Body: Body{Class: ClassReleased}, Expect: a.Seq}
}

// Renewal keeps an acquired lease. Its holder asks Valid before and after it reads
// bytes; the answer depends on nothing but the holder's own clock.
type Renewal struct {
	Key      Key
	Receiver string
	Lease    Body
	TTL      time.Duration
	Margin   time.Duration // how much earlier than the server the holder gives up
	Seq      uint64
	Since    time.Duration // when the write that holds was begun

	state renewState
	began attempts
	retry backoff
}

type renewState uint8

const (
	renewIdle renewState = iota
	renewWriting
	renewReading
	renewWaiting
)

// Valid says whether the lease holds at now. The TTL counts from before the write was
// sent, so that the server's clock can only end it later.
func (n *Renewal) Valid(now time.Duration) bool { return now < n.Since+n.TTL-n.Margin }

// Due is when the next renewal should begin.
func (n *Renewal) Due() time.Duration { return n.Since + n.TTL/3 }

// Step takes the answer to the last intent. Done means renewed; the caller steps again
// when the next renewal is due. ErrLost is final.
func (n *Renewal) Step(r Result) Intent {
	if !n.Valid(r.Now) {
		return fail(ErrLost)
	}
	switch n.state {
	case renewWriting:
		return n.wrote(r)
	case renewReading:
		return n.read(r)
	default:
		return n.write(r.Now)
	}
}

func (n *Renewal) place() Place { return Place{Kind: KindLease, Key: n.Key, Name: n.Receiver} }

func (n *Renewal) write(now time.Duration) Intent {
	n.state = renewWriting
	n.began.start(now)
	return Intent{Verb: Swap, Place: n.place(), Body: n.Lease, Expect: n.Seq, TTL: n.TTL}
}

func (n *Renewal) wrote(r Result) Intent {
	switch r.Outcome {
	case OK:
		return n.renewed(r.Seq, n.began.last)
	case Refused:
		return fail(r.Err)
	default:
		n.state = renewReading
		return Intent{Verb: ReadLeader, Place: n.place()}
	}
}

func (n *Renewal) read(r Result) Intent {
	if r.Outcome == Refused {
		return fail(r.Err)
	}
	if r.Outcome == OK {
		it := r.item()
		if it == nil || it.Body.Class != ClassLease || it.Body.Holder != n.Lease.Holder {
			return fail(ErrLost)
		}
		if it.Seq != n.Seq {
			return n.renewed(it.Seq, n.began.first)
		}
	}
	n.state = renewWaiting
	return n.retry.wait(retryFirst, retryMost)
}

func (n *Renewal) renewed(seq uint64, since time.Duration) Intent {
	n.Seq, n.Since = seq, since
	n.state, n.retry, n.began = renewIdle, backoff{}, attempts{}
	return done()
}

// attempts remembers when the writes of one renewal were begun. An answer tells that
// the last one was stored; a message that is found there may be any of them, so that
// only the first one's time is safe.
type attempts struct {
	first, last time.Duration
	any         bool
}

func (a *attempts) start(now time.Duration) {
	if !a.any {
		a.first, a.any = now, true
	}
	a.last = now
}
