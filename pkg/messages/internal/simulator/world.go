package simulator

import (
	"errors"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Sizes of the simulated model. They are small: what goes wrong with two ranks, two
// receivers and four versions goes wrong with more.
const (
	ranks    = 2
	readers  = 2
	versions = 4
	slots    = 2 // buffers of a publisher
	jobs     = 2

	leaseTTL = 20 * time.Second
	endTTL   = 120 * time.Second
	// lateness bounds how long a write may be under way after its sender gave up: a
	// process that waits longer than its deadline reads again before it writes.
	lateness = 60 * time.Second
)

// world is one run.
type world struct {
	now      time.Duration
	choose   choices
	store    *store
	lanes    []*lane
	requests []*request
	acts     []act // reused
	jobs     []*job
	readers  []*reader
	mutation Mutation
	faults   int // how many are left
	draw     bool
	script   []string
	violated error
	steps    int

	committed map[protocol.Key]protocol.Digest // every manifest that ever stood
	retired   map[protocol.Key]int             // how many ranks have freed the version
	ended     map[protocol.Key]bool            // an end has stood
}

func (w *world) note(format string, args ...any) {
	if w.draw {
		w.script = append(w.script, fmt.Sprintf("%8.3fs  ", w.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

// violate ends the run.
func (w *world) violate(format string, args ...any) {
	if w.violated == nil {
		w.violated = fmt.Errorf(format, args...)
		w.note("VIOLATED: %v", w.violated)
	}
}

func newWorld(c choices, m Mutation, draw bool) *world {
	w := &world{
		choose: c, store: newStore(), mutation: m, draw: draw, faults: 40,
		committed: map[protocol.Key]protocol.Digest{}, retired: map[protocol.Key]int{}, ended: map[protocol.Key]bool{},
	}
	for i := range readers {
		w.readers = append(w.readers, newReader(w, i))
	}
	w.startJob()
	for _, r := range w.readers {
		r.look()
	}
	return w
}

// addLane makes a lane with a clock that may be up to 4 % off.
func (w *world) addLane(name string) *lane {
	drift := []int64{0, 40, -40}[w.choose.pick(3)]
	l := &lane{name: name, clock: clock{offset: time.Duration(len(w.lanes)) * time.Hour, drift: drift}}
	w.lanes = append(w.lanes, l)
	return l
}

// maxSteps bounds a run; all that go right end much earlier.
const maxSteps = 8000

// errNoEnd is the violation of a run in which somebody waits for ever.
var errNoEnd = errors.New("no end")

// run takes steps until nobody has anything to do, or an invariant is violated.
func (w *world) runAll() error {
	for w.steps = 0; w.violated == nil; w.steps++ {
		if w.steps > maxSteps {
			w.violate("%w after %d steps", errNoEnd, w.steps)
			break
		}
		if w.finished() {
			w.checkEnd()
			break
		}
		w.act()
	}
	return w.violated
}

// finished says whether all publishers are through and all receivers serve what they should.
func (w *world) finished() bool {
	for _, j := range w.jobs {
		for _, p := range j.ranks {
			if !p.through {
				return false
			}
		}
	}
	for _, r := range w.readers {
		if r.serving != w.goal() {
			return false
		}
	}
	return len(w.jobs) == jobs
}

// goal is the version that every receiver should serve in the end.
func (w *world) goal() protocol.Key {
	return protocol.Key{Run: uint64(len(w.jobs)), Version: versions}
}

// act takes one step. Most steps bring something forward; some go wrong.
func (w *world) act() {
	if w.faults > 0 && w.choose.chance(6) {
		if w.goWrong() {
			w.faults--
			return
		}
	}
	w.goRight()
}

// act is one thing that can happen next.
type act struct {
	request *request
	lane    *lane
	replica int
}

// goRight delivers, answers, wakes, or lets time pass.
func (w *world) goRight() {
	if w.nextJobMayStart() {
		w.startJob()
		return
	}
	acts := w.acts[:0]
	for _, r := range w.requests {
		// What nobody waits for arrives only when something goes wrong.
		if r.from != nil && (r.applied || w.reachable(r)) {
			acts = append(acts, act{request: r})
		}
	}
	for _, l := range w.lanes {
		if l.waiting && l.wakeAt <= w.now {
			acts = append(acts, act{lane: l})
		}
	}
	for i := range w.store.followers {
		if w.store.mayCatchUp(i, w.now) {
			acts = append(acts, act{replica: i})
		}
	}
	w.acts = acts
	if len(acts) == 0 {
		w.advance()
		return
	}
	switch a := acts[w.choose.pick(uint32(len(acts)))]; {
	case a.request != nil && a.request.applied:
		w.answer(a.request)
	case a.request != nil:
		w.deliver(a.request)
	case a.lane != nil:
		w.wake(a.lane)
	default:
		w.store.catchUp(a.replica)
	}
}

// nextJobMayStart: at any time after the first job has its run; at the latest when it
// is through.
func (w *world) nextJobMayStart() bool {
	if len(w.jobs) == jobs || w.jobs[0].run == 0 {
		return false
	}
	return w.jobs[0].through() || w.choose.chance(200)
}

// reachable says whether a request can be served now: replicas answer reads while
// there is no leader.
func (w *world) reachable(r *request) bool {
	return w.now >= w.store.outage || r.intent.Verb == protocol.Read && r.replica > 0
}

// advance lets time pass to the next moment at which something may happen.
func (w *world) advance() {
	next := w.now + 10*time.Second
	for _, l := range w.lanes {
		if l.waiting && l.wakeAt > w.now {
			next = min(next, l.wakeAt)
		}
	}
	if w.store.outage > w.now {
		next = min(next, w.store.outage)
	}
	for i := range w.store.followers {
		if f := &w.store.followers[i]; f.stalled > w.now {
			next = min(next, f.stalled)
		}
	}
	next = min(next, max(w.store.nextExpiry(), w.now))
	w.pass(next - w.now)
}

func (w *world) pass(d time.Duration) {
	w.now += d
	for _, gone := range w.store.expire(w.now) {
		w.note("%s expires", gone)
	}
	w.requests = dropIf(w.requests, func(r *request) bool {
		return r.from == nil && w.now-r.sent > lateness
	})
}

func dropIf(list []*request, gone func(*request) bool) []*request {
	kept := list[:0]
	for _, r := range list {
		if !gone(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

// deliver performs a request at the store.
func (w *world) deliver(r *request) {
	r.result, r.applied = w.store.apply(r.intent, r.replica, w.now), true
	if w.draw {
		w.note("%-14s %s: %s%s", r.owner, drawIntent(r.intent), drawResult(r.result), drawReplica(r.replica))
	}
	w.observe(r)
	if r.from == nil {
		w.requests = dropIf(w.requests, func(o *request) bool { return o == r })
	}
}

func drawReplica(i int) string {
	if i == 0 {
		return ""
	}
	return fmt.Sprintf(" (follower %d)", i)
}

// answer brings the result back.
func (w *world) answer(r *request) {
	w.requests = dropIf(w.requests, func(o *request) bool { return o == r })
	l := r.from
	l.request = nil
	w.step(l, r.result)
}

// goWrong makes one thing go wrong, if there is something that can.
func (w *world) goWrong() bool {
	var acts []func()
	for _, r := range w.requests {
		if r.from == nil && !r.applied && w.reachable(r) {
			late := func() { w.note("late:"); w.deliver(r) }
			acts = append(acts, late, late, late) // the most telling of faults
		}
		if r.from != nil {
			acts = append(acts, func() { w.timeout(r) })
		}
	}
	acts = append(acts, w.loseLeader, w.delay, w.stall)
	for _, j := range w.jobs {
		for _, p := range j.ranks {
			acts = append(acts, func() { p.crash() })
		}
	}
	for _, r := range w.readers {
		acts = append(acts, func() { r.crash() })
	}
	acts[w.choose.pick(uint32(len(acts)))]()
	return true
}

// timeout makes a sender give up. The request may be lost, or arrive later.
func (w *world) timeout(r *request) {
	l := r.from
	w.note("%-14s gives up on: %s", l.name, drawIntent(r.intent))
	r.from, l.request = nil, nil
	if r.applied || w.choose.chance(2) {
		w.requests = dropIf(w.requests, func(o *request) bool { return o == r })
	}
	w.step(l, protocol.Result{Outcome: protocol.Unknown})
}

func (w *world) loseLeader() {
	d := []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}[w.choose.pick(3)]
	w.note("no leader for %v", d)
	w.store.outage = w.now + d
}

// stall makes a follower lag.
func (w *world) stall() {
	i := w.choose.pick(2)
	d := []time.Duration{time.Second, 10 * time.Second, 40 * time.Second}[w.choose.pick(3)]
	w.note("follower %d lags for %v", i+1, d)
	w.store.followers[i].stalled = w.now + d
}

// delay lets time pass although there is work: everybody is slow.
func (w *world) delay() {
	d := []time.Duration{3 * time.Second, 12 * time.Second, 30 * time.Second}[w.choose.pick(3)]
	w.note("%v pass", d)
	w.pass(d)
}
