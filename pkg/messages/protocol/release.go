package protocol

// Release gives a lease back. One that somebody else holds by now is left alone.
type Release struct {
	Key      Key
	Receiver string
	Holder   [16]byte
	Seq      uint64 // the lease's last known sequence

	state releaseState
	retry backoff
}

type releaseState uint8

const (
	releaseStart releaseState = iota
	releaseWriting
	releaseReading
	releaseWaiting
)

// Step takes the answer to the last intent.
func (l *Release) Step(r Result) Intent {
	if r.Outcome == Refused {
		return fail(r.Err)
	}
	place := Place{Kind: KindLease, Key: l.Key, Name: l.Receiver}
	switch l.state {
	case releaseWriting:
		if r.Outcome == OK {
			return done()
		}
		l.state = releaseReading
		return Intent{Verb: ReadLeader, Place: place}
	case releaseReading:
		if r.Outcome == OK {
			it := r.item()
			if it == nil || it.Body.Class != ClassLease || it.Body.Holder != l.Holder {
				return done()
			}
			l.Seq = it.Seq
		}
		l.state = releaseWaiting
		return l.retry.wait(retryFirst, retryMost)
	default:
		l.state = releaseWriting
		return Intent{Verb: Swap, Place: place, Body: Body{Class: ClassReleased}, Expect: l.Seq}
	}
}
