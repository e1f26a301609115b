package simulator

import (
	"math"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Mutation breaks the protocol in one way, to prove that the simulator would notice.
// The zero value breaks nothing.
type Mutation struct {
	CommitUnread      bool // commit before all tables are read back
	LeaseUnconfirmed  bool // read a version without reading its commit after the lease
	LeaseCheckedOnce  bool // do not look at the lease after bytes were read
	CountBeforeEnd    bool // count the leases before the commit is withdrawn
	FreeUncounted     bool // purge tables and free buffers without counting leases
	LeasesFromReplica bool // count leases at a replica
	CommitFromReplica bool // confirm the commit at a replica
	NoFence           bool // commit whatever run is the newest
	NoEnd             bool // purge the commit and leave its place empty
	PurgeAny          bool // purge whatever is in the commit's place
	BaseIgnored       bool // stage a difference upon whatever is served
	ClockIgnored      bool // a holder waits to be told that its lease is lost
}

// perform changes an intent on its way; true sends a read to a follower.
func (m Mutation) perform(in protocol.Intent) (protocol.Intent, bool) {
	if m.NoFence {
		in.Fence = 0
	}
	if m.PurgeAny && in.Verb == protocol.Purge {
		in.Expect = math.MaxUint64
	}
	follower := m.LeasesFromReplica && in.Verb == protocol.ListLeases ||
		m.CommitFromReplica && in.Verb == protocol.ReadLeader && in.Place.Kind == protocol.KindCommit
	return in, follower
}

func (m Mutation) commit(c *protocol.Commit) machine {
	if m.CommitUnread {
		return &unread{c}
	}
	return c
}

// unread answers the commit's reads with the tables that it hopes for.
type unread struct{ c *protocol.Commit }

func (u *unread) Step(r protocol.Result) protocol.Intent {
	in := u.c.Step(r)
	if in.Verb != protocol.Read || in.Places[0].Kind != protocol.KindTable {
		return in
	}
	forged := protocol.Result{Outcome: protocol.OK, Now: r.Now}
	for i, p := range in.Places {
		forged.Items = append(forged.Items, protocol.Item{Place: p, Seq: uint64(i) + 1, Body: tableBody(p.Key, p.Rank)})
	}
	return u.c.Step(forged)
}

func (m Mutation) acquire(a *protocol.Acquire) machine {
	if m.LeaseUnconfirmed {
		return &unconfirmed{a}
	}
	return a
}

// unconfirmed believes that what it saw committed once still is.
type unconfirmed struct{ a *protocol.Acquire }

func (u *unconfirmed) Step(r protocol.Result) protocol.Intent {
	in := u.a.Step(r)
	if in.Verb != protocol.ReadLeader || in.Place.Kind != protocol.KindCommit {
		return in
	}
	hoped := protocol.Item{Place: in.Place, Seq: 1, Body: protocol.Body{Class: protocol.ClassManifest}}
	return u.a.Step(protocol.Result{Outcome: protocol.OK, Now: r.Now, Items: []protocol.Item{hoped}})
}

func (m Mutation) retire(t *protocol.Retire) machine {
	switch {
	case m.CountBeforeEnd:
		return &countFirst{Retire: t}
	case m.FreeUncounted:
		return &uncounted{t}
	case m.NoEnd:
		return &noEnd{t}
	}
	return t
}

// countFirst looks at the leases, and then withdraws the version.
type countFirst struct {
	*protocol.Retire
	counted bool
}

func (c *countFirst) Step(r protocol.Result) protocol.Intent {
	if c.counted {
		in := c.Retire.Step(r)
		if in.Verb == protocol.ListLeases {
			return c.Retire.Step(protocol.Result{Outcome: protocol.OK, Now: r.Now})
		}
		return in
	}
	if r.Outcome == protocol.OK && len(r.Items) == 0 {
		c.counted = true
		return c.Retire.Step(protocol.Result{Now: r.Now})
	}
	return protocol.Intent{Verb: protocol.ListLeases, Place: protocol.Place{Kind: protocol.KindCommit, Key: c.Key}}
}

// uncounted takes for granted that nobody reads.
type uncounted struct{ *protocol.Retire }

func (u *uncounted) Step(r protocol.Result) protocol.Intent {
	in := u.Retire.Step(r)
	if in.Verb == protocol.ListLeases {
		return u.Retire.Step(protocol.Result{Outcome: protocol.OK, Now: r.Now})
	}
	return in
}

// noEnd claims that the end was put.
type noEnd struct{ *protocol.Retire }

func (n *noEnd) Step(r protocol.Result) protocol.Intent {
	in := n.Retire.Step(r)
	if in.Verb == protocol.Put {
		return n.Retire.Step(protocol.Result{Outcome: protocol.OK, Now: r.Now})
	}
	return in
}
