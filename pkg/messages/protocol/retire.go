package protocol

import "time"

// Retire withdraws a version and waits until nobody reads it: replace the manifest by
// an end, then count the leases through the leader, and only when none lives remove
// the rank's table. After Done the rank's bytes are free.
//
// Each rank runs its own; they need not agree on a moment.
type Retire struct {
	Key  Key
	Rank int
	End  Body // what to leave in the commit's place
	// EndTTL is how long the end stays. It must outlive every write of a manifest
	// that may still be under way.
	EndTTL time.Duration
	// Keep leaves the rank's table and digests where they are.
	Keep bool

	Holders []Item // the leases that were seen last
	Counted int    // how often leases were counted

	state retireState
	retry backoff
}

type retireState uint8

const (
	retireStart retireState = iota
	retireLooking
	retirePurging
	retireEnding
	retireCounting
	retireWaiting // for leases
	retireRemoving
	retireRetry // from the beginning
)

// leasePoll is how often held leases are counted again.
const leasePoll = 250 * time.Millisecond

// Step takes the answer to the last intent.
func (t *Retire) Step(r Result) Intent {
	if r.Outcome == Refused {
		return fail(r.Err)
	}
	switch t.state {
	case retireLooking:
		return t.looked(r)
	case retirePurging:
		return t.purged(r)
	case retireEnding:
		return t.endedIt(r)
	case retireCounting:
		return t.counted(r)
	case retireWaiting:
		return t.count()
	case retireRemoving:
		return t.removed(r)
	default:
		return t.look()
	}
}

func (t *Retire) commit() Place { return Place{Kind: KindCommit, Key: t.Key} }

func (t *Retire) look() Intent {
	t.state = retireLooking
	return Intent{Verb: ReadLeader, Place: t.commit()}
}

func (t *Retire) again() Intent {
	t.state = retireRetry
	return t.retry.wait(retryFirst, retryMost)
}

func (t *Retire) looked(r Result) Intent {
	switch it := r.item(); {
	case r.Outcome != OK:
		return t.again()
	case it == nil:
		return t.end()
	case ended(it.Body.Class) != nil:
		return t.count()
	default:
		// Only this manifest: a purge that arrives late must not remove the end.
		t.state = retirePurging
		return Intent{Verb: Purge, Place: t.commit(), Expect: it.Seq}
	}
}

func (t *Retire) purged(r Result) Intent {
	if r.Outcome != OK {
		return t.again()
	}
	return t.end()
}

// end occupies the commit's place: a manifest that a slow committer still has under
// way can't land there any more.
func (t *Retire) end() Intent {
	t.state = retireEnding
	return Intent{Verb: Put, Place: t.commit(), Body: t.End, TTL: t.EndTTL}
}

func (t *Retire) endedIt(r Result) Intent {
	if r.Outcome != OK {
		// Another rank's end, or a late manifest: look which.
		return t.again()
	}
	return t.count()
}

func (t *Retire) count() Intent {
	t.state = retireCounting
	return Intent{Verb: ListLeases, Place: t.commit()}
}

func (t *Retire) counted(r Result) Intent {
	if r.Outcome != OK {
		t.state = retireWaiting
		return t.retry.wait(retryFirst, retryMost)
	}
	t.Counted++
	t.Holders = r.Items
	if len(r.Items) > 0 {
		t.state = retireWaiting
		return Intent{Verb: Wait, Delay: leasePoll}
	}
	if t.Keep {
		return done()
	}
	return t.remove()
}

func (t *Retire) remove() Intent {
	t.state = retireRemoving
	return Intent{Verb: PurgeTable, Place: Place{Kind: KindTable, Key: t.Key, Rank: t.Rank}}
}

func (t *Retire) removed(r Result) Intent {
	if r.Outcome != OK {
		t.state = retireWaiting
		return t.retry.wait(retryFirst, retryMost)
	}
	return done()
}
