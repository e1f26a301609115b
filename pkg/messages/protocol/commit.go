package protocol

import (
	"errors"
	"time"
)

// Commit waits until every rank's table of a version is there, and puts the manifest
// that they make, or finds that somebody did. Any number of ranks may run it at once:
// equal tables make equal manifests.
type Commit struct {
	Key   Key
	World int
	// Build makes the manifest from the tables of ranks 0 to World-1; its error refuses
	// the version, naming the rank that contradicts.
	Build func(tables []Item) (Body, error)

	Manifest Item // after Done: what was committed

	tables  []Item // by rank; Seq 0 is missing
	state   commitState
	put     PutOnce
	retry   backoff
	missing int
}

type commitState uint8

const (
	commitStart commitState = iota
	commitReading
	commitChecking
	commitFencing
	commitWaiting
	commitPutting
)

// Missing lists the ranks whose tables have not been seen, for the error of whoever
// gives up.
func (c *Commit) Missing() []int {
	var ranks []int
	for i := range c.World {
		if c.tables == nil || c.tables[i].Seq == 0 {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Step takes the answer to the last intent.
func (c *Commit) Step(r Result) Intent {
	switch c.state {
	case commitReading:
		return c.read(r)
	case commitChecking:
		return c.checked(r)
	case commitFencing:
		return c.fenced(r)
	case commitPutting:
		return c.step(r)
	default:
		return c.ask()
	}
}

// ask reads the tables that are still missing.
func (c *Commit) ask() Intent {
	if c.tables == nil {
		c.tables = make([]Item, c.World)
	}
	var places []Place
	for i := range c.tables {
		if c.tables[i].Seq == 0 {
			places = append(places, Place{Kind: KindTable, Key: c.Key, Rank: i})
		}
	}
	c.state, c.missing = commitReading, len(places)
	return Intent{Verb: Read, Places: places}
}

func (c *Commit) read(r Result) Intent {
	if r.Outcome == Refused {
		return fail(r.Err)
	}
	found := 0
	for _, it := range r.Items {
		if it.Place.Kind != KindTable || it.Place.Key != c.Key || it.Place.Rank < 0 || it.Place.Rank >= c.World {
			continue
		}
		if c.tables[it.Place.Rank].Seq == 0 {
			c.tables[it.Place.Rank] = it
			found++
		}
	}
	if c.missing -= found; c.missing > 0 {
		if found > 0 {
			c.retry = backoff{}
		}
		// Somebody may have ended the version, or committed it and gone on.
		c.state = commitChecking
		return Intent{Verb: Read, Places: []Place{{Kind: KindCommit, Key: c.Key}}}
	}
	body, err := c.Build(c.tables)
	if err != nil {
		return fail(err)
	}
	c.put = PutOnce{Place: Place{Kind: KindCommit, Key: c.Key}, Body: body, Fence: c.Key.Run}
	c.state = commitPutting
	return c.step(Result{})
}

func (c *Commit) checked(r Result) Intent {
	if r.Outcome == Refused {
		return fail(r.Err)
	}
	if it := r.item(); it != nil && ended(it.Body.Class) != nil {
		return fail(ended(it.Body.Class))
	}
	c.state = commitFencing
	return Intent{Verb: LastRun}
}

// fenced ends the wait for ranks that have stopped because a newer run exists.
func (c *Commit) fenced(r Result) Intent {
	if r.Outcome == Refused {
		return fail(r.Err)
	}
	if it := r.item(); it != nil && it.Place.Key.Run > c.Key.Run {
		return fail(ErrFenced)
	}
	c.state = commitWaiting
	return c.retry.wait(retryFirst, commitMost)
}

// commitMost bounds the wait between looks at the tables. The rank that publishes last
// sees all of them at once and commits, which wakes the others; this is for the case
// that it dies in between. A thousand ranks that asked for a thousand tables twice a
// second would be a load of their own.
const commitMost = 2 * time.Second

// step runs the put and says what a conflict is about.
func (c *Commit) step(r Result) Intent {
	in := c.put.Step(r)
	switch {
	case in.Verb == Done:
		c.Manifest = c.put.Stored
	case in.Verb == Fail && errors.Is(in.Err, ErrConflict):
		if err := ended(c.put.Stored.Body.Class); err != nil {
			return fail(err)
		}
	}
	return in
}

// ended is the error of a commit place that holds an end; nil for anything else.
func ended(c Class) error {
	switch c {
	case ClassAbandoned:
		return ErrAbandoned
	case ClassRetired:
		return ErrRetired
	}
	return nil
}
