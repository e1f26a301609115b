package simulator

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// store is the stream and the buckets: a leader's state, which every acknowledged
// write is in, and two followers that lag behind it.
type store struct {
	seq       uint64
	state     map[protocol.Place]entry
	log       []change
	followers [2]follower
	outage    time.Duration // until when there is no leader
}

type entry struct {
	item    protocol.Item
	expires time.Duration // 0: never
}

// change is one step of the state, as followers replay it. A zero sequence removes.
type change struct {
	place protocol.Place
	item  protocol.Item
}

type follower struct {
	applied int
	stalled time.Duration // until when it applies nothing
	state   map[protocol.Place]protocol.Item
}

func newStore() *store {
	s := &store{state: map[protocol.Place]entry{}}
	for i := range s.followers {
		s.followers[i].state = map[protocol.Place]protocol.Item{}
	}
	return s
}

func (s *store) set(p protocol.Place, b protocol.Body, expires time.Duration) protocol.Item {
	s.seq++
	it := protocol.Item{Place: p, Seq: s.seq, Body: b}
	s.state[p] = entry{it, expires}
	s.log = append(s.log, change{p, it})
	return it
}

func (s *store) remove(p protocol.Place) {
	if _, ok := s.state[p]; ok {
		delete(s.state, p)
		s.log = append(s.log, change{place: p})
	}
}

// expire ends what has outlived its TTL. A lease leaves a marker behind, an end nothing.
func (s *store) expire(now time.Duration) []string {
	var gone []string
	if now < s.nextExpiry() {
		return nil
	}
	for _, p := range slices.SortedFunc(maps.Keys(s.state), comparePlaces) {
		e := s.state[p]
		if e.expires == 0 || e.expires > now {
			continue
		}
		gone = append(gone, drawPlace(p))
		if p.Kind == protocol.KindLease && e.item.Body.Class == protocol.ClassLease {
			s.set(p, protocol.Body{Class: protocol.ClassReleased}, now+10*time.Second)
		} else {
			s.remove(p)
		}
	}
	return gone
}

// nextExpiry is the earliest moment at which something may expire.
func (s *store) nextExpiry() time.Duration {
	next := time.Duration(math.MaxInt64)
	for _, e := range s.state {
		if e.expires != 0 {
			next = min(next, e.expires)
		}
	}
	return next
}

// catchUp lets a follower apply one change.
func (s *store) catchUp(i int) {
	f := &s.followers[i]
	c := s.log[f.applied]
	f.applied++
	if c.item.Seq == 0 {
		delete(f.state, c.place)
	} else {
		f.state[c.place] = c.item
	}
}

// mayCatchUp says whether a follower has something to apply, and is not stalled.
func (s *store) mayCatchUp(i int, now time.Duration) bool {
	return s.followers[i].applied < len(s.log) && s.followers[i].stalled <= now
}

// apply performs one intent at the leader, or a read at a replica (0 is the leader).
func (s *store) apply(in protocol.Intent, replica int, now time.Duration) protocol.Result {
	ok := protocol.Result{Outcome: protocol.OK}
	switch in.Verb {
	case protocol.Put:
		return s.put(in, now)
	case protocol.Swap:
		return s.swap(in, now)
	case protocol.Read:
		for _, p := range in.Places {
			if it, found := s.read(p, replica); found {
				ok.Items = append(ok.Items, it)
			}
		}
	case protocol.ReadLeader:
		if it, found := s.read(in.Place, replica); found {
			ok.Items = []protocol.Item{it}
		}
	case protocol.LastRun, protocol.LastOrder:
		ok.Items = s.last(in.Verb, replica)
	case protocol.ListRuns:
		ok.Items = s.pick(replica, func(it protocol.Item) bool { return it.Place.Kind == protocol.KindRun })
	case protocol.ListLeases:
		ok.Items = s.leases(in.Place.Key, replica)
	case protocol.Purge:
		if s.state[in.Place].item.Seq <= in.Expect {
			s.remove(in.Place)
		}
	case protocol.PurgeTable:
		s.remove(in.Place)
	default:
		panic(fmt.Sprintf("simulator: verb %d", in.Verb))
	}
	return ok
}

func (s *store) put(in protocol.Intent, now time.Duration) protocol.Result {
	if in.Fence != 0 {
		if _, taken := s.state[protocol.Place{Kind: protocol.KindRun, Key: protocol.Key{Run: in.Fence + 1}}]; taken {
			return protocol.Result{Outcome: protocol.Fenced}
		}
	}
	if _, taken := s.state[in.Place]; taken {
		return protocol.Result{Outcome: protocol.Exists}
	}
	return protocol.Result{Outcome: protocol.OK, Seq: s.set(in.Place, in.Body, expiry(in.TTL, now)).Seq}
}

func (s *store) swap(in protocol.Intent, now time.Duration) protocol.Result {
	if s.state[in.Place].item.Seq != in.Expect {
		return protocol.Result{Outcome: protocol.Exists}
	}
	ttl := in.TTL
	if in.Body.Class == protocol.ClassReleased {
		ttl = 10 * time.Second
	}
	return protocol.Result{Outcome: protocol.OK, Seq: s.set(in.Place, in.Body, expiry(ttl, now)).Seq}
}

func expiry(ttl, now time.Duration) time.Duration {
	if ttl == 0 {
		return 0
	}
	return now + ttl
}

func (s *store) read(p protocol.Place, replica int) (protocol.Item, bool) {
	if replica == 0 {
		e, ok := s.state[p]
		return e.item, ok
	}
	it, ok := s.followers[replica-1].state[p]
	return it, ok
}

// each visits all items in no order.
func (s *store) each(replica int, visit func(protocol.Item)) {
	if replica == 0 {
		for _, e := range s.state {
			visit(e.item)
		}
		return
	}
	for _, it := range s.followers[replica-1].state {
		visit(it)
	}
}

// pick lists the items that match, in the order of their places.
func (s *store) pick(replica int, match func(protocol.Item) bool) []protocol.Item {
	var items []protocol.Item
	s.each(replica, func(it protocol.Item) {
		if match(it) {
			items = append(items, it)
		}
	})
	slices.SortFunc(items, func(a, b protocol.Item) int { return comparePlaces(a.Place, b.Place) })
	return items
}

func (s *store) last(v protocol.Verb, replica int) []protocol.Item {
	kind := protocol.KindRun
	if v == protocol.LastOrder {
		kind = protocol.KindOrder
	}
	var newest protocol.Item
	s.each(replica, func(it protocol.Item) {
		if it.Place.Kind == kind && it.Seq > newest.Seq {
			newest = it
		}
	})
	if newest.Seq == 0 {
		return nil
	}
	return []protocol.Item{newest}
}

func (s *store) leases(key protocol.Key, replica int) []protocol.Item {
	return s.pick(replica, func(it protocol.Item) bool {
		return it.Place.Kind == protocol.KindLease && it.Place.Key == key && it.Body.Class == protocol.ClassLease
	})
}
