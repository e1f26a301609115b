package protocol

import "time"

// Assemble reads the manifest of a version and then exactly the tables that it names.
// What a replica does not show yet is asked for again, then asked of the leader; what
// contradicts the manifest refuses the version.
type Assemble struct {
	Key Key
	// Digests returns the digest of each rank's table from the manifest's body.
	Digests func(manifest Body) ([]Digest, error)

	Manifest Item   // after Done
	Tables   []Item // after Done: by rank
	Wrong    int    // after ErrConflict: the rank whose table is another one

	digests []Digest
	state   assembleState
	began   time.Duration
	retry   backoff
	next    int // rank that the leader is asked for
}

type assembleState uint8

const (
	assembleStart assembleState = iota
	assembleCommit
	assembleReading
	assembleWaiting
	assembleLeader
	assembleRecheck
)

// How long a replica may lag before the leader is asked, and how long the whole may
// take before the reader should look for a newer version.
const (
	AskLeaderAfter = 2 * time.Second
	GiveUpAfter    = 10 * time.Second
)

// lagFirst and lagMost bound the delay between asking replicas again: all measured
// lags ended within 31 ms.
const (
	lagFirst = 10 * time.Millisecond
	lagMost  = 30 * time.Millisecond
)

// Missing lists the ranks whose tables have not been read.
func (a *Assemble) Missing() []int {
	var ranks []int
	for i := range a.Tables {
		if a.Tables[i].Seq == 0 {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Step takes the answer to the last intent.
func (a *Assemble) Step(r Result) Intent {
	if r.Outcome == Refused {
		return fail(r.Err)
	}
	switch a.state {
	case assembleCommit:
		return a.gotCommit(r)
	case assembleReading, assembleLeader:
		return a.gotTables(r)
	case assembleWaiting:
		return a.ask(r.Now)
	case assembleRecheck:
		return a.rechecked(r)
	default:
		a.state, a.began = assembleCommit, r.Now
		return Intent{Verb: ReadLeader, Place: a.commit()}
	}
}

func (a *Assemble) commit() Place { return Place{Kind: KindCommit, Key: a.Key} }

func (a *Assemble) gotCommit(r Result) Intent {
	if r.Outcome != OK {
		a.state = assembleStart
		return a.retry.wait(retryFirst, retryMost)
	}
	it := r.item()
	if it == nil {
		return fail(ErrNotCommitted)
	}
	if err := ended(it.Body.Class); err != nil {
		return fail(err)
	}
	a.Manifest = *it
	var err error
	if a.digests, err = a.Digests(it.Body); err != nil {
		return fail(err)
	}
	a.Tables, a.retry = make([]Item, len(a.digests)), backoff{}
	return a.ask(r.Now)
}

// ask reads what is missing: from any replica, or one by one from the leader.
func (a *Assemble) ask(now time.Duration) Intent {
	missing := a.Missing()
	if now-a.began >= AskLeaderAfter {
		rank := missing[a.next%len(missing)]
		a.next++
		a.state = assembleLeader
		return Intent{Verb: ReadLeader, Place: Place{Kind: KindTable, Key: a.Key, Rank: rank}}
	}
	places := make([]Place, len(missing))
	for i, rank := range missing {
		places[i] = Place{Kind: KindTable, Key: a.Key, Rank: rank}
	}
	a.state = assembleReading
	return Intent{Verb: Read, Places: places}
}

func (a *Assemble) gotTables(r Result) Intent {
	for _, it := range r.Items {
		p := it.Place
		if p.Kind != KindTable || p.Key != a.Key || p.Rank < 0 || p.Rank >= len(a.Tables) {
			continue
		}
		if it.Body.Digest != a.digests[p.Rank] {
			a.Wrong = p.Rank
			return fail(ErrConflict)
		}
		a.Tables[p.Rank] = it
	}
	missing := a.Missing()
	switch {
	case len(missing) == 0:
		return done()
	case r.Now-a.began >= GiveUpAfter:
		a.state = assembleRecheck
		return Intent{Verb: ReadLeader, Place: a.commit()}
	case a.state == assembleLeader && r.Outcome == OK && len(r.Items) == 0:
		// The leader has no such table: the version is being collected, or was torn
		// by a loss of data. Which of the two, the commit tells.
		a.state = assembleRecheck
		return Intent{Verb: ReadLeader, Place: a.commit()}
	case a.state == assembleLeader && r.Outcome == OK:
		return a.ask(r.Now)
	}
	a.state = assembleWaiting
	return a.retry.wait(lagFirst, lagMost)
}

func (a *Assemble) rechecked(r Result) Intent {
	if r.Outcome == OK {
		it := r.item()
		if it == nil {
			return fail(ErrRetired)
		}
		if err := ended(it.Body.Class); err != nil {
			return fail(err)
		}
	}
	return fail(ErrMissing)
}
