package protocol

import "time"

// PutOnce writes one message to a place that is written once, as often as it takes.
// When the place is taken it compares: an equal message is success, since the writer
// may have been here before; another one is ErrConflict, and the first writer wins.
type PutOnce struct {
	Place Place
	Body  Body
	Fence uint64
	TTL   time.Duration // 0: for ever

	Stored Item // after Done: what lies there; after ErrConflict: the other's message

	state putState
	retry backoff
}

type putState uint8

const (
	putStart putState = iota
	putWriting
	putReading
	putWaitWrite
	putWaitRead
)

// Step takes the answer to the last intent.
func (p *PutOnce) Step(r Result) Intent {
	switch p.state {
	case putStart, putWaitWrite:
		return p.write()
	case putWaitRead:
		return p.read()
	case putWriting:
		return p.wrote(r)
	default:
		return p.compared(r)
	}
}

func (p *PutOnce) write() Intent {
	p.state = putWriting
	return Intent{Verb: Put, Place: p.Place, Body: p.Body, Fence: p.Fence, TTL: p.TTL}
}

func (p *PutOnce) read() Intent {
	p.state = putReading
	return Intent{Verb: ReadLeader, Place: p.Place}
}

func (p *PutOnce) wrote(r Result) Intent {
	switch r.Outcome {
	case OK:
		p.Stored = Item{Place: p.Place, Seq: r.Seq, Body: p.Body}
		return done()
	case Exists:
		return p.read()
	case Fenced:
		return fail(ErrFenced)
	case Refused:
		return fail(r.Err)
	default:
		// It may have been stored: writing again tells, and changes nothing.
		p.state = putWaitWrite
		return p.retry.wait(retryFirst, retryMost)
	}
}

func (p *PutOnce) compared(r Result) Intent {
	switch {
	case r.Outcome == Refused:
		return fail(r.Err)
	case r.Outcome != OK:
		p.state = putWaitRead
		return p.retry.wait(retryFirst, retryMost)
	case r.item() == nil:
		// Removed since, or in flight when we wrote.
		p.state = putWaitWrite
		return p.retry.wait(retryFirst, retryMost)
	}
	p.Stored = *r.item()
	if p.Stored.Body.Digest == p.Body.Digest {
		return done()
	}
	return fail(ErrConflict)
}
