package refit

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// Several receivers that feed one engine install a version together or not at all. They agree in rounds, over one record
// that is changed by compare-and-set only (messages.EngineRecord):
//
//	gathering → installing → committed
//	        ↘           ↘ aborted
//
// A receiver comes in when it has the version staged. When all are there, each has its installer take the version and
// writes down the yes. The last yes commits; any no, and any member's patience, aborts. Because a record can't be
// committed and aborted both, all members find the same end, also one that comes back after a crash: committed means that
// every installer said yes, and each member flips its names; else each returns to the old version.
//
// Functions here are pure: they say what the record becomes.

// standing is where a round is, as one of its members sees it.
type standing uint8

const (
	standWaiting    standing = iota // another round isn't decided yet
	standGathering                  // some are missing
	standInstalling                 // all are there, and not all have said yes
	standCommitted
	standAborted
	standSuperseded // another version is wanted
	standReplaced   // another process has come in under this one's name
)

// undecided says whether a round is under way.
func undecided(r *messages.EngineRecord) bool {
	return r.Phase == messages.EngineGathering || r.Phase == messages.EngineInstalling
}

// bid is a member that comes in with a version.
type bid struct {
	me   messages.EngineMember
	size int
	key  messages.Key
	back bool // by an operator's order
}

// join takes a bid in. next is nil where the record stays as it is.
func join(r *messages.EngineRecord, b bid) (next *messages.EngineRecord, now standing, err error) {
	switch {
	case r.Size != 0 && r.Size != b.size && undecided(r) && r.Key == b.key:
		return nil, 0, fmt.Errorf("engine %s has %d receivers by its record, %d by this one's configuration", r.Engine, r.Size, b.size)
	case r.Phase == messages.EngineCommitted && r.Key == b.key:
		return nil, standCommitted, nil // the others have it: nothing is left to agree on
	case !undecided(r):
		next, now = begin(r, b)
		return next, now, nil
	case r.Key != b.key || r.Back != b.back:
		return oust(r, b)
	case r.Phase == messages.EngineGathering:
		next, now = enter(r, b)
		return next, now, nil
	case takesPart(r, b.me.Name):
		// An earlier life of this receiver took part. Whether its installer was through is not known: none of them is to
		// wait for it.
		return abort(r, r.Attempt, b.me.Name, restarted, false), standWaiting, nil
	}
	return nil, 0, fmt.Errorf("engine %s has its %d receivers already (%s): %s is one too many", r.Engine, r.Size, memberNames(r), b.me.Name)
}

// oust decides between a round and a bid for another version: a newer one goes first, and an operator's order before both.
// What is being installed is waited for.
func oust(r *messages.EngineRecord, b bid) (*messages.EngineRecord, standing, error) {
	switch {
	case r.Phase == messages.EngineInstalling:
		return nil, standWaiting, nil
	case b.back || !r.Back && r.Key.Less(b.key):
		next, now := begin(r, b)
		return next, now, nil
	}
	return nil, standSuperseded, nil
}

// begin opens a new round with its first member.
func begin(r *messages.EngineRecord, b bid) (*messages.EngineRecord, standing) {
	return enter(&messages.EngineRecord{
		Engine: r.Engine, Size: b.size, Attempt: r.Attempt + 1, Key: b.key, Back: b.back, Phase: messages.EngineGathering,
		Served: r.Served, ServedAttempt: r.ServedAttempt, Roster: r.Roster,
	}, b)
}

// enter adds a member to a round that gathers. One that comes in under the name of another takes its place: most likely it
// is the next life of a receiver that died. If the other lives, it sees that (replaced), and ends the round.
func enter(r *messages.EngineRecord, b bid) (*messages.EngineRecord, standing) {
	next := *r
	next.Members = slices.DeleteFunc(slices.Clone(r.Members), func(m messages.EngineMember) bool { return m.Name == b.me.Name })
	next.Members = append(next.Members, b.me)
	slices.SortFunc(next.Members, func(x, y messages.EngineMember) int { return strings.Compare(x.Name, y.Name) })
	if len(next.Members) < next.Size {
		return &next, standGathering
	}
	next.Phase, next.Roster = messages.EngineInstalling, nil
	for i := range next.Members {
		next.Roster = append(next.Roster, next.Members[i].Name)
	}
	return &next, standInstalling
}

// look says where the round of an attempt is for a member that came into it, whatever has happened since.
func look(r *messages.EngineRecord, attempt uint64, me *messages.EngineMember) standing {
	switch {
	case r.Attempt == attempt && r.Phase != messages.EngineAborted && replaced(r, me) != nil:
		return standReplaced
	case r.ServedAttempt == attempt:
		return standCommitted
	case r.Attempt != attempt, r.Phase == messages.EngineAborted:
		return standAborted // a new round begins only where this one ended without a commit, or was ousted while it gathered
	case r.Phase == messages.EngineGathering:
		return standGathering
	}
	return standInstalling
}

// replaced finds the other process that stands in a member's place.
func replaced(r *messages.EngineRecord, me *messages.EngineMember) *messages.EngineMember {
	for i := range r.Members {
		if m := &r.Members[i]; m.Name == me.Name && m.Life != me.Life {
			return m
		}
	}
	return nil
}

// namesakes is why a round ends in which two processes go by one name. Neither may install: which ranks the engine would
// get from "the receiver of that name" would depend on who came last.
func namesakes(me, other *messages.EngineMember) string {
	return fmt.Sprintf("two receivers are called %s, one on host %s (arenas %s) and one on host %s (arenas %s): each needs a name of its own",
		me.Name, me.Host, arenaOf(me), other.Host, arenaOf(other))
}

// arenaOf is where a member's first file lies.
func arenaOf(m *messages.EngineMember) string {
	if len(m.Files) == 0 {
		return "nowhere"
	}
	return filepath.Dir(m.Files[0])
}

// installed notes a member's yes; the last one commits. nil: nothing is to be changed.
func installed(r *messages.EngineRecord, attempt uint64, me *messages.EngineMember) *messages.EngineRecord {
	if r.Attempt != attempt || r.Phase != messages.EngineInstalling || replaced(r, me) != nil {
		return nil
	}
	next := *r
	next.Members = slices.Clone(r.Members)
	all := true
	for i := range next.Members {
		m := &next.Members[i]
		m.Installed = m.Installed || m.Name == me.Name
		all = all && m.Installed
	}
	if all {
		next.Phase, next.Served, next.ServedAttempt = messages.EngineCommitted, next.Key, attempt
	}
	return &next
}

// abort ends a round that isn't decided. nil: it is, or another one is under way.
func abort(r *messages.EngineRecord, attempt uint64, by, reason string, final bool) *messages.EngineRecord {
	if r.Attempt != attempt || !undecided(r) {
		return nil
	}
	next := *r
	next.Phase, next.By, next.Reason, next.Final = messages.EngineAborted, by, reason, final
	return &next
}

// restarted is why a round ends whose member comes in anew.
const restarted = "it was restarted in the middle of the installation"

func takesPart(r *messages.EngineRecord, name string) bool {
	return slices.ContainsFunc(r.Members, func(m messages.EngineMember) bool { return m.Name == name })
}

// memberNames lists who is there.
func memberNames(r *messages.EngineRecord) string {
	if len(r.Members) == 0 {
		return "none"
	}
	names := make([]string, len(r.Members))
	for i := range r.Members {
		names[i] = r.Members[i].Name
	}
	return strings.Join(names, ", ")
}

// missing says who is waited for: by name, where they took part before.
func missing(r *messages.EngineRecord) string {
	var names []string
	if r.Phase == messages.EngineInstalling {
		for i := range r.Members {
			if !r.Members[i].Installed {
				names = append(names, r.Members[i].Name)
			}
		}
		return strings.Join(names, ", ") + " to install it"
	}
	for _, name := range r.Roster {
		if !takesPart(r, name) {
			names = append(names, name)
		}
	}
	n := r.Size - len(r.Members)
	if len(names) != n {
		return fmt.Sprintf("%d of %d receivers to stage it (%s are there)", n, r.Size, memberNames(r))
	}
	return strings.Join(names, ", ") + " to stage it"
}
