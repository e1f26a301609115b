package protocol

import (
	"errors"
	"time"
)

// Kind is what a place holds.
type Kind uint8

// The kinds of places.
const (
	KindTable  Kind = iota + 1 // one rank's table of one version
	KindCommit                 // a version's manifest, or its end
	KindLease                  // one receiver's lease on one version
	KindRun                    // the record of one run
	KindOrder                  // an operator's order
)

// Place names one message. The zero fields of a kind stay zero, so that places compare.
type Place struct {
	Kind Kind
	Key  Key    // KindRun: only Run; KindOrder: its number, as Run
	Rank int    // KindTable
	Name string // KindLease: the receiver
}

// Verb is what an intent asks for.
type Verb uint8

// The verbs. After each but Done and Fail the machine expects a Result.
const (
	Put        Verb = iota + 1 // store Body at Place if nothing is there, and if run Fence+1 is not taken
	Swap                       // store Body at Place if its last sequence is Expect
	Read                       // read Places from any replica: what is missing may only lag
	ReadLeader                 // read Place as of all acknowledged writes
	ListLeases                 // read all leases on Key through the leader
	LastRun                    // read the newest run record through the leader
	ListRuns                   // read all run records through the leader
	LastOrder                  // read the newest order through the leader
	Purge                      // remove what is at Place if its sequence is not above Expect
	PurgeTable                 // remove a rank's table and tile digests of Key
	Wait                       // let Delay pass, or less when something may have changed
	Done                       // the machine is finished
	Fail                       // the machine is finished, Err says why
)

// Intent is what a machine wants done next.
type Intent struct {
	Verb   Verb
	Place  Place
	Places []Place // Read
	Body   Body    // Put, Swap
	Expect uint64  // Swap: of what is replaced, 0 is nothing; Purge: of what is removed
	Fence  uint64  // Put: this run must be the newest; 0: no matter
	TTL    time.Duration
	Delay  time.Duration // Wait
	Err    error         // Fail
}

// Class is what a body is.
type Class uint8

// The classes of bodies.
const (
	ClassTable     Class = iota + 1
	ClassManifest        // a commit
	ClassAbandoned       // an end: never committed
	ClassRetired         // an end: withdrawn
	ClassLease
	ClassReleased // a lease that was given back or has expired: nobody's
	ClassRun
	ClassOrder
	ClassBad // can't be read; its bytes are kept for the quarantine
)

// Body is a message's content, and what the machines need to know of it.
type Body struct {
	Class  Class
	Digest Digest
	Bytes  []byte
	Holder [16]byte // ClassLease: which acquisition wrote it
	Owner  string   // ClassRun: the job; ClassLease: the receiver
	World  int      // ClassRun, ClassTable
	Facts  any      // the decoded message, for whoever made it
}

// Item is one message that was read.
type Item struct {
	Place Place
	Seq   uint64
	Body  Body
	Trace map[string]string // trace context, opaque to the machines
}

// Outcome is how an intent went.
type Outcome uint8

// The outcomes.
const (
	OK      Outcome = iota + 1
	Exists          // Put: something is there; Swap: the sequence is another
	Fenced          // Put: run Fence+1 is taken
	Busy            // another copy of this write is in flight: ask again
	Unknown         // no answer: it may or may not have happened
	Refused         // the server says never; Err tells
)

// Result answers an intent.
type Result struct {
	Outcome Outcome
	Seq     uint64        // Put, Swap: of the stored message
	Items   []Item        // reads: what was found
	Now     time.Duration // the process's monotonic clock
	Err     error         // Refused, Unknown: why
}

// item is the single item of a read, nil when nothing is there.
func (r Result) item() *Item {
	if len(r.Items) == 0 {
		return nil
	}
	return &r.Items[0]
}

// Errors that machines end with. Package messages gives each its public name.
var (
	ErrConflict     = errors.New("another message is in this place")
	ErrFenced       = errors.New("a newer run exists")
	ErrAbandoned    = errors.New("the version was abandoned")
	ErrRetired      = errors.New("the version was retired")
	ErrNotCommitted = errors.New("the version is not committed")
	ErrLost         = errors.New("the lease is lost")
	ErrHeld         = errors.New("leases are held")
	ErrMissing      = errors.New("messages are missing")
)

func done() Intent          { return Intent{Verb: Done} }
func fail(err error) Intent { return Intent{Verb: Fail, Err: err} }

// backoff doubles from first to most. The zero value starts anew.
type backoff struct{ last time.Duration }

func (b *backoff) wait(first, most time.Duration) Intent {
	b.last = min(max(2*b.last, first), most)
	return Intent{Verb: Wait, Delay: b.last}
}

// Delays between attempts. They are short against elections and long against a round trip.
const (
	retryFirst = 10 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)
