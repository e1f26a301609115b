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
	version uint64
	attempt uint64
	doing   string // "", gathering, installing, voting, waiting
}

// TestNoInterleavingSplitsAnEngine runs members in random order, with installers that say no, members that lose patience,
// crash and come back, and versions that supersede each other. Whatever happens, the members of one round must find
// the same end, and a commit must have every member's yes.
func TestNoInterleavingSplitsAnEngine(t *testing.T) {
	t.Parallel()
	commits := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &agreement{t: t, rng: rng, record: &messages.EngineRecord{Engine: "e"}, yes: map[uint64]map[string]bool{}, ends: map[uint64]standing{}}
		size := 2 + rng.IntN(2)
		for i := range size {
			m.actors = append(m.actors, &actor{name: fmt.Sprintf("m%d", i), version: 1})
		}
		for range 60 {
			m.step(m.actors[rng.IntN(size)])
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
	actors []*actor
	yes    map[uint64]map[string]bool // by round: whose installer said yes
	ends   map[uint64]standing        // by round: what the first member found
	log    []string
}

// put writes the record, unless there is nothing to write; as the server does, one writer after the other.
func (m *agreement) put(a *actor, what string, next *messages.EngineRecord) {
	if next != nil {
		if _, err := messages.EncodeEngine(next); err != nil {
			m.t.Errorf("a record that can't be written: %v", err)
		}
		m.record = next
	}
	m.log = append(m.log, fmt.Sprintf("%s v%d a%d %s: round %d of v%d %s, %s", a.name, a.version, a.attempt, what,
		m.record.Attempt, m.record.Key.Version, m.record.Phase, memberNames(m.record)))
}

func (m *agreement) step(a *actor) {
	chance := m.rng.IntN(100)
	switch {
	case chance < 3: // killed and started again
		a.doing, a.attempt = "", 0
		m.put(a, "crashes", nil)
	case chance < 8 && a.doing != "":
		m.put(a, "gives up", abort(m.record, a.attempt, a.name, "late", false))
		m.end(a)
	case chance < 12 && a.doing == "":
		a.version++
	case a.doing == "":
		m.join(a)
	case a.doing == "gathering":
		switch stands(m.record, a.attempt, a.name) {
		case standInstalling:
			a.doing = "installing"
		case standAborted:
			a.doing = ""
		}
	case a.doing == "installing" && chance < 20: // the installer says no
		m.put(a, "refuses", abort(m.record, a.attempt, a.name, "no", true))
		a.doing = ""
	case a.doing == "installing":
		if m.yes[a.attempt] == nil {
			m.yes[a.attempt] = map[string]bool{}
		}
		m.yes[a.attempt][a.name] = true
		a.doing = "voting"
	case a.doing == "voting":
		m.put(a, "says yes", yes(m.record, a.attempt, a.name))
		a.doing = "waiting"
	default:
		m.end(a)
	}
}

func (m *agreement) join(a *actor) {
	b := bid{me: member(a.name), size: len(m.actors), key: messages.Key{Run: 1, Version: a.version}}
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
	now := stands(m.record, a.attempt, a.name)
	if now != standCommitted && now != standAborted {
		return
	}
	if before, seen := m.ends[a.attempt]; seen && before != now {
		m.t.Errorf("round %d ended as %d for one, as %d for %s", a.attempt, before, now, a.name)
	}
	m.ends[a.attempt] = now
	if now == standCommitted {
		a.version++
		if len(m.yes[a.attempt]) != len(m.actors) {
			m.t.Errorf("round %d is committed with the yes of %d of %d", a.attempt, len(m.yes[a.attempt]), len(m.actors))
		}
	}
	a.doing = ""
}
