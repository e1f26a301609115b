package refit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
)

func member(name string) messages.EngineMember {
	return messages.EngineMember{Name: name, Host: "host-" + name, Life: "1", Ranks: []int{0}, Files: []string{"/arenas/" + name + "/rank-0"}}
}

// yes is installed for the first life of a name; stands is look for it.
func yes(r *messages.EngineRecord, attempt uint64, name string) *messages.EngineRecord {
	me := member(name)
	return installed(r, attempt, &me)
}

func stands(r *messages.EngineRecord, attempt uint64, name string) standing {
	me := member(name)
	return look(r, attempt, &me)
}

func bidOf(name string, version uint64) bid {
	return bid{me: member(name), size: 2, key: messages.Key{Run: 1, Version: version}}
}

// joined has a bid come in that must.
func joined(t *testing.T, r *messages.EngineRecord, b bid, want standing) *messages.EngineRecord {
	t.Helper()
	next, now, err := join(r, b)
	if err != nil || now != want {
		t.Fatalf("%s with %s finds %d, want %d: %v", b.me.Name, b.key, now, want, err)
	}
	if next == nil {
		return r
	}
	return next
}

func TestARoundCommitsWithTheLastYes(t *testing.T) {
	t.Parallel()
	r := joined(t, &messages.EngineRecord{Engine: "e"}, bidOf("west", 1), standGathering)
	if yes(r, 1, "west") != nil {
		t.Error("a yes counts before all are there")
	}
	r = joined(t, r, bidOf("east", 1), standInstalling)
	if !slices.Equal(r.Roster, []string{"east", "west"}) {
		t.Errorf("roster %v", r.Roster)
	}
	r = yes(r, 1, "west")
	if stands(r, 1, "east") != standInstalling || missing(r) != "east to install it" {
		t.Errorf("after one yes it stands at %d, waiting for %s", stands(r, 1, "east"), missing(r))
	}
	r = yes(r, 1, "east")
	if stands(r, 1, "east") != standCommitted || abort(r, 1, "west", "late", false) != nil {
		t.Error("not committed, or it can be aborted still")
	}
	joined(t, r, bidOf("east", 1), standCommitted) // it has crashed before it flipped
	r = joined(t, r, bidOf("east", 2), standGathering)
	if stands(r, 1, "east") != standCommitted {
		t.Error("the next round makes one forget how the last one ended")
	}
	if missing(r) != "west to stage it" {
		t.Errorf("waits for %s", missing(r))
	}
}

func TestWhoComesInWhenAnotherRoundIsUnderWay(t *testing.T) {
	t.Parallel()
	gathering := func() *messages.EngineRecord {
		return joined(t, &messages.EngineRecord{Engine: "e"}, bidOf("west", 5), standGathering)
	}
	back := bidOf("east", 4)
	back.back = true
	joined(t, gathering(), bidOf("east", 4), standSuperseded)
	newer := joined(t, gathering(), bidOf("east", 6), standGathering)
	if newer.Attempt != 2 || stands(newer, 1, "east") != standAborted {
		t.Errorf("a newer version does not oust: %+v", newer)
	}
	ordered := joined(t, gathering(), back, standGathering)
	joined(t, ordered, bidOf("west", 5), standSuperseded) // an order goes before what is newer

	installing := joined(t, gathering(), bidOf("east", 5), standInstalling)
	joined(t, installing, bidOf("east", 6), standWaiting)
	again := joined(t, installing, bidOf("east", 5), standWaiting) // it was restarted
	if stands(again, 1, "east") != standAborted || again.By != "east" || !strings.Contains(again.Reason, "restarted") {
		t.Errorf("the others still wait for the one that was restarted: %+v", again)
	}
	if _, _, err := join(installing, bidOf("north", 5)); err == nil || !strings.Contains(err.Error(), "east, west") {
		t.Errorf("a third one is taken in: %v", err)
	}
	three := bidOf("east", 5)
	three.size = 3
	if _, _, err := join(gathering(), three); err == nil {
		t.Error("members that differ about their number agree")
	}
}

// actor is one receiver of the model below.
type actor struct {
	name    string
	life    int // counts its starts; a namesake's begin at 1,000
	version uint64
	attempt uint64
	doing   string // "", gathering, installing, voting, waiting
}

func (a *actor) me() messages.EngineMember {
	m := member(a.name)
	m.Life = fmt.Sprint(a.life)
	return m
}

func (a *actor) stands(r *messages.EngineRecord) standing {
	me := a.me()
	return look(r, a.attempt, &me)
}

// TestNoInterleavingSplitsAnEngine runs members in random order, with installers that say no, members that lose patience,
// crash and come back, versions that supersede each other, and now and then another process that goes by a member's name.
// Whatever happens, the members of one round must find the same end, and a commit must have the yes of each life that stands in it.
func TestNoInterleavingSplitsAnEngine(t *testing.T) {
	t.Parallel()
	commits := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &agreement{t: t, rng: rng, record: &messages.EngineRecord{Engine: "e"}, yes: map[string]bool{}, ends: map[uint64]standing{}}
		m.size = 2 + rng.IntN(2)
		for i := range m.size {
			m.actors = append(m.actors, &actor{name: fmt.Sprintf("m%d", i), version: 1})
		}
		if rng.IntN(3) == 0 {
			m.actors = append(m.actors, &actor{name: "m0", life: 1000, version: 1})
		}
		for range 60 {
			m.step(m.actors[rng.IntN(len(m.actors))])
		}
		for _, end := range m.ends {
			if end == standCommitted {
				commits++
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d\n%s", seed, strings.Join(m.log, "\n"))
		}
	}
	if commits < 1000 {
		t.Errorf("only %d rounds were committed: the test says little", commits)
	}
}

type agreement struct {
	t      *testing.T
	rng    *rand.Rand
	record *messages.EngineRecord
	size   int // of the engine
	actors []*actor
	yes    map[string]bool     // which life's installer said yes in which round
	ends   map[uint64]standing // by round: what the first member found
	log    []string
}

// vote names a life's yes in a round.
func vote(attempt uint64, m messages.EngineMember) string {
	return fmt.Sprintf("%d: %s/%s", attempt, m.Name, m.Life)
}

// put writes the record, unless there is nothing to write; as the server does, one writer after the other.
func (m *agreement) put(a *actor, what string, next *messages.EngineRecord) {
	if next != nil {
		if _, err := messages.EncodeEngine(next); err != nil {
			m.t.Errorf("a record that can't be written: %v", err)
		}
		m.record = next
		for _, member := range next.Members {
			if next.Phase == messages.EngineCommitted && (len(next.Members) != m.size || !m.yes[vote(next.Attempt, member)]) {
				m.t.Errorf("round %d is committed by %d of %d without the yes of %s/%s", next.Attempt, len(next.Members), m.size, member.Name, member.Life)
			}
		}
	}
	m.log = append(m.log, fmt.Sprintf("%s/%d v%d a%d %s: round %d of v%d %s, %s", a.name, a.life, a.version, a.attempt, what,
		m.record.Attempt, m.record.Key.Version, m.record.Phase, memberNames(m.record)))
}

func (m *agreement) step(a *actor) {
	chance := m.rng.IntN(100)
	switch {
	case chance < 3: // killed and started again
		a.doing, a.attempt, a.life = "", 0, a.life+1
		m.put(a, "crashes", nil)
	case chance < 8 && a.doing != "":
		m.put(a, "gives up", abort(m.record, a.attempt, a.name, "late", false))
		m.end(a)
	case chance < 12 && a.doing == "":
		a.version++
	case a.doing == "":
		m.join(a)
	case a.doing == "gathering":
		switch a.stands(m.record) {
		case standInstalling:
			a.doing = "installing"
		case standAborted:
			a.doing = ""
		case standReplaced:
			m.end(a)
		}
	case a.doing == "installing" && chance < 20: // the installer says no
		m.put(a, "refuses", abort(m.record, a.attempt, a.name, "no", true))
		a.doing = ""
	case a.doing == "installing":
		m.yes[vote(a.attempt, a.me())] = true
		a.doing = "voting"
	case a.doing == "voting":
		me := a.me()
		m.put(a, "says yes", installed(m.record, a.attempt, &me))
		a.doing = "waiting"
	default:
		m.end(a)
	}
}

func (m *agreement) join(a *actor) {
	b := bid{me: a.me(), size: m.size, key: messages.Key{Run: 1, Version: a.version}}
	next, now, err := join(m.record, b)
	if err != nil {
		m.t.Errorf("%s: %v", a.name, err)
	}
	m.put(a, "comes in", next)
	switch now {
	case standGathering, standInstalling:
		a.attempt, a.doing = m.record.Attempt, "gathering"
	case standSuperseded:
		a.version = m.record.Key.Version
	case standCommitted:
		a.version++ // served here too; on to the next
	}
}

// end has a member look how its round ended, if it did.
func (m *agreement) end(a *actor) {
	now := a.stands(m.record)
	switch now {
	case standReplaced:
		m.put(a, "finds another in its place", abort(m.record, a.attempt, a.name, "two", true))
		a.doing = ""
		return
	case standCommitted, standAborted:
	default:
		return
	}
	if before, seen := m.ends[a.attempt]; seen && before != now {
		m.t.Errorf("round %d ended as %d for one, as %d for %s", a.attempt, before, now, a.name)
	}
	m.ends[a.attempt] = now
	if now == standCommitted {
		a.version++
	}
	a.doing = ""
}
