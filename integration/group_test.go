package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// One engine of two ranks, on two hosts: each host has a receiver process, a host id and an arena folder of its own, and
// a part of the engine that notes what it was given. Whatever happens to one of them, both serve one version: what they
// show by name, and what their parts of the engine hold, is the old version on both until the round is committed.

// groupPatience is how long members wait for each other. A round that outlasts it on a busy machine is only held again.
const groupPatience = 3 * time.Second

// fleet is the two members of the engine. west is the one that things happen to.
type fleet struct {
	*world
	east, west *member
}

// member is a receiver and its part of the engine.
type member struct {
	*receiver
	engine string // file of what it was given, by lines
}

// newFleet starts publishers of some versions and no member. Publishers wait for the gate and for both members.
func newFleet(t *testing.T, versions int) (*fleet, []*process) {
	t.Helper()
	f := &fleet{world: newWorld(t, shape{receivers: 2})}
	return f, f.publishers("--versions", strconv.Itoa(versions))
}

// openFor lets the publishers go on past a version that no member serves.
func (f *fleet) openFor(version uint64) {
	f.t.Helper()
	for _, gate := range []string{"gate-a", "gate-b"} {
		if err := f.eye.PutStatus(f.ctx, gate, messages.Status{Role: messages.RoleReceiver, Serving: key(version), Updated: time.Now()}); err != nil {
			f.t.Fatal(err)
		}
	}
	f.open(version)
}

// member starts a receiver of one rank. The folder of its host, and with it its engine's notes, outlive it.
func (f *fleet) member(name, host string, rank int, change func(*actor)) *member {
	f.t.Helper()
	folder := filepath.Join(f.arenas, host)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		f.t.Fatal(err)
	}
	a := actor{
		Role: "receiver", Name: name, Host: host, Arenas: folder, Capture: built.captures[f.tp], TP: f.tp, Ranks: []int{rank},
		Group: refit.Engine{Name: "big", Size: 2, Patience: groupPatience}, Engine: filepath.Join(folder, "engine-"+name),
	}
	if change != nil {
		change(&a)
	}
	r := &receiver{process: f.actor(a), w: f.world, host: folder, ranks: a.Ranks}
	return &member{r, a.Engine}
}

// begin has both members serve version 1, each with its own stops later on.
func (f *fleet) begin(east, west map[uint64]moment) {
	f.t.Helper()
	f.east = f.member("east", "host-a", 0, func(a *actor) { a.Stops = east })
	f.west = f.member("west", "host-b", 1, func(a *actor) { a.Stops = west })
	f.bothServe(1)
}

// holds is the version that a part of the engine was given last.
func (m *member) holds() uint64 {
	m.t.Helper()
	b, err := os.ReadFile(m.engine)
	if err != nil {
		m.t.Fatal(err)
	}
	lines := strings.Fields(string(b))
	v, err := strconv.ParseUint(lines[len(lines)-1], 10, 64)
	if err != nil {
		m.t.Fatal(err)
	}
	return v
}

// bothServe proves that both members and both parts of the engine have a version.
func (f *fleet) bothServe(version uint64) {
	f.t.Helper()
	for _, m := range []*member{f.east, f.west} {
		f.status(m.name, "serves version "+strconv.FormatUint(version, 10), func(s messages.Status) bool {
			return s.Serving == key(version) && s.Staging.IsZero()
		})
		m.shows(version, version)
		if got := m.holds(); got != version {
			f.t.Errorf("%s: its part of the engine holds version %d, its name leads to %d", m.name, got, version)
		}
	}
}

// awaitRound waits until the engine's record is as wanted.
func (f *fleet) awaitRound(what string, wanted func(*messages.EngineRecord) bool) {
	f.t.Helper()
	eventually(f.t, what, func() (bool, string) {
		r, _, err := f.eye.Engine(f.ctx, "big")
		if err != nil {
			return false, err.Error()
		}
		return wanted(r), r.Key.String() + " is " + string(r.Phase)
	})
}

// blow is a point of the round at which west is struck.
type blow struct {
	name      string
	west      moment                                    // west stops itself there
	when      func(*messages.EngineRecord, uint64) bool // west is struck when the record of a version is so; nil: see west
	east      moment                                    // where east is held meanwhile; zero: nowhere
	committed bool                                      // nothing can stop the version any more
}

// blows are the points, in order.
var blows = []blow{
	{name: "staged", west: moment{"staged", tracing.PhaseStage, tracing.PhaseStage, true}},
	{name: "apply begins", west: moment{"apply begins", tracing.PhaseApply, tracing.PhaseApply, false}},
	{name: "about to come in", west: moment{"about to come in", tracing.PhaseApply, "installation", false}},
	{
		name: "come in, the other is missing", east: moment{"apply begins", tracing.PhaseApply, tracing.PhaseApply, false},
		when: func(r *messages.EngineRecord, v uint64) bool {
			return r.Key == key(v) && r.Phase == messages.EngineGathering && r.Members[0].Name == "west"
		},
	},
	{name: "in the installer", west: moment{inInstaller, tracing.PhaseApply, "", false}},
	{name: "installed, not said", west: moment{afterInstaller, tracing.PhaseApply, "", false}},
	{
		name: "said yes, the other has not", east: moment{inInstaller, tracing.PhaseApply, "", false}, committed: true,
		when: func(r *messages.EngineRecord, v uint64) bool {
			return r.Key == key(v) && r.Phase == messages.EngineInstalling && r.Members[1].Installed
		},
	},
	{name: "flipped, not shown", west: moment{"flipped", tracing.PhaseApply, "installation", true}, committed: true},
}

// stopsOf arms version 2+i with the i-th blow, as one of the members has it.
func stopsOf(which func(blow) moment) map[uint64]moment {
	stops := map[uint64]moment{}
	for i, b := range blows {
		if m := which(b); m.Name != "" {
			stops[uint64(i+2)] = m
		}
	}
	return stops
}

func westStops() map[uint64]moment { return stopsOf(func(b blow) moment { return b.west }) }
func eastStops() map[uint64]moment { return stopsOf(func(b blow) moment { return b.east }) }

// meet brings west to a blow's point in a version, and strikes it there.
func (f *fleet) meet(b blow, version uint64, strike func()) {
	f.t.Helper()
	f.open(version - 1)
	if b.east.Name != "" {
		f.east.stands(b.east.Name)
	}
	if b.when == nil {
		f.west.stands(b.name)
	} else {
		f.awaitRound(b.name, func(r *messages.EngineRecord) bool { return b.when(r, version) })
	}
	strike()
	if b.east.Name != "" {
		f.east.thaw()
	}
}

// stayed proves, after west was struck in a round that was not committed, that east gave up and is where it was.
func (f *fleet) stayed(version uint64, east, west image) {
	f.t.Helper()
	failure := f.east.failed(version, refit.GroupLate)
	if !strings.Contains(failure.Text, "west") {
		f.t.Errorf("east does not say whom it waited for: %s", failure.Text)
	}
	f.east.unchanged(east)
	f.west.unchanged(west)
	if got := f.east.holds(); got != version-1 {
		f.t.Errorf("east's part of the engine holds version %d without the other part", got)
	}
}

// TestAMemberKilledAtEachPointOfTheRound kills one life of west after the other, each a step further in its round. East
// waits for no longer than its patience, and stays on the old version or returns to it; with the next life of west, both
// have the new one.
func TestAMemberKilledAtEachPointOfTheRound(t *testing.T) {
	t.Parallel()
	f, publishers := newFleet(t, len(blows)+1)
	stops := westStops()
	f.begin(eastStops(), map[uint64]moment{2: stops[2]})
	for i, b := range blows {
		v := uint64(i + 2)
		east, west := f.east.image(), f.west.image()
		f.meet(b, v, f.west.kill)
		if !b.committed {
			f.stayed(v, east, west)
		}
		f.west = f.member("west", "host-b", 1, func(a *actor) {
			if m, armed := stops[v+1]; armed {
				a.Stops = map[uint64]moment{v + 1: m}
			}
		})
		f.bothServe(v)
		if t.Failed() {
			t.Fatalf("killed: %s", b.name)
		}
	}
	f.leave(publishers)
}

// TestAMemberThatHangsAtEachPointOfTheRound stops west instead, for longer than east's patience, and lets it go on.
func TestAMemberThatHangsAtEachPointOfTheRound(t *testing.T) {
	t.Parallel()
	f, publishers := newFleet(t, len(blows)+1)
	f.begin(eastStops(), westStops())
	for i, b := range blows {
		v := uint64(i + 2)
		east, west := f.east.image(), f.west.image()
		f.meet(b, v, func() {
			if b.when != nil {
				f.west.freeze()
			}
		})
		if b.committed {
			f.east.record(v, tracing.OutcomeApplied)
		} else {
			f.stayed(v, east, west)
		}
		f.west.thaw()
		f.bothServe(v)
		if t.Failed() {
			t.Fatalf("hung: %s", b.name)
		}
	}
	f.leave(publishers)
}

func (f *fleet) leave(publishers []*process) {
	f.t.Helper()
	f.east.leavesCleanly(true)
	f.west.leavesCleanly(true)
	leave(f.t, publishers...)
}

// TestAMemberThatRefusesKeepsBothBack has west's part of the engine say no to version 2. Nobody takes it, and nobody
// tries it again; version 3 is taken by both.
func TestAMemberThatRefusesKeepsBothBack(t *testing.T) {
	t.Parallel()
	f, publishers := newFleet(t, 3)
	f.east = f.member("east", "host-a", 0, nil)
	f.west = f.member("west", "host-b", 1, func(a *actor) { a.Refuses = map[uint64]bool{2: true} })
	f.bothServe(1)
	east, west := f.east.image(), f.west.image()
	f.open(1)
	f.west.failed(2, refit.InstallRefused)
	if failure := f.east.failed(2, refit.GroupRefused); !strings.Contains(failure.Text, "west: not version 2") {
		t.Errorf("east says: %s", failure.Text)
	}
	f.east.unchanged(east)
	f.west.unchanged(west)
	if e, w := f.east.holds(), f.west.holds(); e != 1 || w != 1 {
		t.Errorf("the engine's parts hold %d and %d", e, w)
	}
	f.openFor(2)
	f.bothServe(3)
	for _, m := range []*member{f.east, f.west} {
		m.recordsOf(2, tracing.OutcomeFailed)
	}
	f.leave(publishers)
}

// TestTwoHostsUnderOneName starts two receivers that are called alike on two hosts of one engine. Both are refused by
// name, before an engine is touched; when the second one gets a name of its own, both serve.
func TestTwoHostsUnderOneName(t *testing.T) {
	t.Parallel()
	f, publishers := newFleet(t, 2)
	f.east = f.member("east", "host-a", 0, nil)
	wrong := f.member("east", "host-b", 1, nil)
	for _, m := range []*member{f.east, wrong} {
		m.awaitSaid("two receivers are called east", "host-a", "host-b", "class="+string(refit.GroupRefused))
		m.holdsNothingThatServes()
		if _, err := os.Stat(m.engine); err == nil {
			t.Errorf("the engine's part on %s was asked", m.host)
		}
	}
	if code := wrong.stop(); code != 0 {
		t.Errorf("left with exit code %d", code)
	}
	f.west = f.member("west", "host-b", 1, nil)
	f.openFor(1)
	f.bothServe(2)
	f.leave(publishers)
}

// TestAStagedVersionOutlivesANormalStop stops a receiver that has staged version 2 and waits for the other one, which is
// dead. Its next life serves the version without reading a byte.
func TestAStagedVersionOutlivesANormalStop(t *testing.T) {
	t.Parallel()
	f, publishers := newFleet(t, 2)
	f.begin(nil, nil)
	before := f.east.image()
	f.west.kill()
	f.open(1)
	f.awaitRound("east has come in", func(r *messages.EngineRecord) bool {
		return r.Key == key(2) && r.Phase == messages.EngineGathering && r.Members[0].Name == "east"
	})
	if code := f.east.stop(); code != 0 {
		t.Errorf("left with exit code %d: %s", code, f.east.lastSaid())
	}
	f.east.unchanged(before)
	f.east.shows(1, 1)
	f.east, f.west = f.member("east", "host-a", 0, nil), f.member("west", "host-b", 1, nil)
	f.bothServe(2)
	if r := f.east.record(2, tracing.OutcomeApplied); r.Bytes != 0 || r.Drydock.SavedBytes != r.Drydock.NeededBytes {
		t.Errorf("read %d bytes, saved %d of %d", r.Bytes, r.Drydock.SavedBytes, r.Drydock.NeededBytes)
	}
	f.leave(publishers)
}

// part is a member's part of the engine as a program: while a file `hold-<name>` lies in the folder it does not answer,
// and dies with the receiver that called it; a file `refuse-<name>-<version>` makes it say no.
const part = `
while test -e "$1/hold-$2"; do
	echo > "$1/inside-$2"
	kill -0 $PPID 2>/dev/null || exit 1
	sleep 0.02
done
test ! -e "$1/refuse-$2-$DRYDOCK_VERSION" || { echo "not version $DRYDOCK_VERSION"; exit 1; }
echo "$DRYDOCK_VERSION" >> "$1/engine-$2"
`

// program starts the real receiver as a member.
func (f *fleet) program(name, host string, rank int) *member {
	f.t.Helper()
	folder := filepath.Join(f.arenas, host)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		f.t.Fatal(err)
	}
	args := []string{
		"--arena-dir", folder, "--engine-group", "big", "--engine-group-size", "2", "--engine-group-patience", groupPatience.String(), "--installer", "exec",
	}
	for _, a := range []string{"/bin/sh", "-c", part, "engine", folder, name} {
		args = append(args, "--exec="+a)
	}
	ranks := []int{rank}
	p := start(f.t, name, "receiver", f.receiverArgs(name, ranks, args...)...)
	return &member{&receiver{process: p, w: f.world, host: folder, ranks: ranks}, filepath.Join(folder, "engine-"+name)}
}

// tell puts a file beside a member's engine, or takes it away.
func (m *member) tell(name string, there bool) {
	m.t.Helper()
	path := filepath.Join(m.host, name)
	var err error
	if there {
		err = os.WriteFile(path, nil, 0o600)
	} else {
		err = os.Remove(path)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// inside waits until the member's part of the engine was called and holds the call.
func (m *member) inside() {
	m.t.Helper()
	path := filepath.Join(m.host, "inside-"+m.name)
	eventually(m.t, m.name+"'s part of the engine is called", func() (bool, string) {
		_, err := os.Stat(path)
		return err == nil, errText(err)
	})
	if err := os.Remove(path); err != nil {
		m.t.Fatal(err)
	}
}

// TestAnEngineOfTwoPrograms runs the programs themselves, with the flags that an operator gives them: west's part of the
// engine refuses a version, hangs in one, and west is killed and told to stop in the middle of an installation.
func TestAnEngineOfTwoPrograms(t *testing.T) {
	t.Parallel()
	f, publishers := newFleet(t, 6)
	f.east, f.west = f.program("east", "host-a", 0), f.program("west", "host-b", 1)
	f.bothServe(1)
	east, west := f.east.image(), f.west.image()

	f.west.tell("refuse-west-2", true)
	f.open(1)
	f.west.failed(2, refit.InstallRefused)
	f.east.failed(2, refit.GroupRefused)
	f.east.unchanged(east)
	f.west.unchanged(west)
	f.openFor(2)
	f.bothServe(3)

	east, west = f.east.image(), f.west.image()
	f.west.tell("hold-west", true)
	f.open(3)
	f.west.inside()
	f.stayed(4, east, west) // it hangs for longer than east is patient
	f.west.tell("hold-west", false)
	f.bothServe(4)

	f.west.tell("hold-west", true)
	east, west = f.east.image(), f.west.image()
	f.open(4)
	f.west.inside()
	f.west.kill()
	f.stayed(5, east, west)
	f.west.tell("hold-west", false)
	f.west = f.program("west", "host-b", 1)
	f.bothServe(5)

	f.west.tell("hold-west", true)
	east, west = f.east.image(), f.west.image()
	f.open(5)
	f.west.inside()
	f.west.signal(syscall.SIGTERM) // its part of the engine is told to stop, and is given the old version again
	f.west.tell("hold-west", false)
	if code := f.west.ended(); code != 0 {
		t.Errorf("west left with exit code %d: %s", code, f.west.lastSaid())
	}
	f.stayed(6, east, west)
	if got := f.west.holds(); got != 5 {
		t.Errorf("west's part of the engine holds version %d after it was told to stop", got)
	}
	f.west = f.program("west", "host-b", 1)
	f.bothServe(6)
	f.leave(publishers)
}
