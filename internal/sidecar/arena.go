package sidecar

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// arena is one rank: what its trainer attached, and the versions in it. Requests only look and ask: whatever may take long
// is done by the arena's one worker, in order, and is waited for as long as the request says. So a request may be repeated,
// or its connection lost, without anything being done twice.
type arena struct {
	rank     int
	req      AttachRequest // as attached first; its entries are dropped
	external bool
	geometry *geometry
	files    *files // nil: external
	answer   AttachAnswer

	open    func(ctx context.Context) (engine, error) // joins the run
	control control
	drain   time.Duration // longest wait for readers
	log     *slog.Logger

	cancel  context.CancelFunc
	giveUp  context.CancelFunc // ends the wait for the run
	working sync.WaitGroup
	queue   chan *task

	mu       sync.Mutex
	engine   engine // nil: not joined
	owner    owner
	session  string
	versions map[uint64]*version
	closing  *task // set once the arena is to end
}

// version is what is known of one version.
type version struct {
	number  uint64
	session string // that began it
	slot    int
	state   State
	err     *Error
	task    *task // under way; nil: none
	took    Took
	ref     *messages.Ref // once it is committed
	base    *uint64       // that it was committed upon; nil: it is whole
}

// task is one piece of the worker's work.
type task struct {
	kind    State // what is being done: Waiting, Publishing, Draining; "" ends the arena
	of      *version
	parent  trace.SpanContext // the trainer's own trace
	digests *messages.Tiles   // that the trainer made; nil: none, or they are the engine's to make
	base    *uint64           // version that this one is a difference from; nil: none
	changed []string          // with base
	done    chan struct{}     // closed when it is done
}

// Bounds of what an arena remembers and queues. A trainer has one version under way, and some that drain.
const (
	maxVersions = 64
	maxTasks    = 256
)

func (a *arena) start(ctx context.Context) {
	a.versions = map[uint64]*version{}
	a.queue = make(chan *task, maxTasks)
	ctx, a.cancel = context.WithCancel(ctx)
	joining, giveUp := context.WithCancel(ctx)
	a.giveUp = giveUp
	a.working.Go(func() {
		defer giveUp()
		if _, err := a.joined(joining); err != nil { // the others wait for rank 0: it begins at once
			a.log.Warn("run not joined yet", "error", err)
		}
		a.work(ctx, joining)
	})
}

// stop ends the worker, and whatever it is at, and waits for it.
func (a *arena) stop() {
	a.cancel()
	a.working.Wait()
}

// attach makes a client's session the arena's own. The versions of an earlier session stay what they are, but whoever
// attaches anew can't go on writing them.
func (a *arena) attach(session string, o owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if session != a.session {
		for n, v := range a.versions {
			switch {
			case v.state == Waiting:
				v.session = session // nobody has written it: the new client may
			case v.task == nil && (v.state == Filling || v.state == Failed && v.slot < 0):
				delete(a.versions, n) // its writer is gone, or was given nothing to write; the slot is given out again
			}
		}
	}
	a.session, a.owner = session, o
}

// enter checks that a request comes from the client that the arena belongs to, which has mapped the files that it has.
func (a *arena) enter(r *VersionRequest, now time.Time) error {
	switch {
	case r.Session != a.session:
		return refuse(Superseded, "a newer client has attached to rank %d", a.rank)
	case r.Generation != a.answer.Generation:
		return refuse(StaleGeneration, "the arena of rank %d has generation %d, the request is about %d: attach again", a.rank, a.answer.Generation, r.Generation)
	case a.closing != nil:
		return refuse(ArenaBusy, "the arena of rank %d is being ended", a.rank)
	case r.Run != 0 && a.engine != nil && a.engine.run().Run != r.Run:
		return refuse(Fenced, "rank %d is in run %d, not in run %d", a.rank, a.engine.run().Run, r.Run)
	}
	a.owner.seen = now
	return nil
}

// begin asks for a slot for a version.
func (a *arena) begin(r *VersionRequest, now time.Time) (*version, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.enter(r, now); err != nil {
		return nil, err
	}
	v := a.versions[r.Version]
	switch {
	case v == nil:
		v = a.add(r.Version, -1)
		return v, a.do(&task{kind: Waiting, of: v})
	case v.session != a.session:
		return nil, refuse(VersionTaken, "version %d was published by an earlier life of the trainer of rank %d: begin a new job, or go on after it", r.Version, a.rank)
	case v.state == Failed && v.err.Retry && v.slot < 0:
		return v, a.do(&task{kind: Waiting, of: v})
	case v.state == Failed && v.err.Retry:
		v.state = Filling
	case v.state == Draining || v.state == Drained:
		return nil, refuse(VersionEnded, "version %d was withdrawn", r.Version)
	}
	return v, nil
}

// publish asks for a version to be published. After the sidecar was started again it takes the client's word for the slot:
// that the generation is the same shows that the files are.
func (a *arena) publish(r *VersionRequest, t *task, now time.Time) (*version, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.enter(r, now); err != nil {
		return nil, err
	}
	v := a.versions[r.Version]
	if v == nil {
		if !a.slotExists(r.Slot) {
			return nil, refuse(WrongSlot, "rank %d has no slot %d", a.rank, r.Slot)
		}
		v = a.add(r.Version, r.Slot)
		v.state = Filling
		if err := a.do(&task{kind: Waiting, of: v}); err != nil {
			return nil, err
		}
	}
	switch {
	case v.session != a.session:
		return nil, refuse(VersionTaken, "version %d was published by an earlier life of the trainer of rank %d", r.Version, a.rank)
	case v.state == Draining || v.state == Drained:
		return nil, refuse(VersionEnded, "version %d was withdrawn", r.Version)
	case v.state == Publishing || v.state == Committed || v.state == Failed && !v.err.Retry:
		return v, nil
	case v.slot < 0:
		return nil, refuse(NotBegun, "no slot was handed out for version %d yet", r.Version)
	case v.slot != r.Slot:
		return nil, refuse(WrongSlot, "version %d was given slot %d, not %d", r.Version, v.slot, r.Slot)
	}
	t.kind, t.of = Publishing, v
	return v, a.do(t)
}

func (a *arena) slotExists(i int) bool {
	return a.external && i == 0 || a.files != nil && i >= 0 && i < len(a.files.slots)
}

// withdraw asks for a version to be withdrawn.
func (a *arena) withdraw(r *VersionRequest, now time.Time) (*version, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.enter(r, now); err != nil {
		return nil, err
	}
	v := a.versions[r.Version]
	if v == nil {
		v = a.add(r.Version, -1)
	}
	if v.state == Drained || v.state == Draining && v.task != nil {
		return v, nil
	}
	return v, a.do(&task{kind: Draining, of: v})
}

// add remembers a version, and forgets the oldest that is over.
func (a *arena) add(number uint64, slot int) *version {
	v := &version{number: number, session: a.session, slot: slot}
	a.versions[number] = v
	for len(a.versions) > maxVersions {
		over := slices.DeleteFunc(a.known(), func(x *version) bool { return x.task != nil || x == v })
		if len(over) == 0 {
			break
		}
		oldest := slices.MinFunc(over, func(x, y *version) int { return cmp.Compare(x.number, y.number) })
		delete(a.versions, oldest.number)
	}
	return v
}

func (a *arena) known() []*version {
	var all []*version
	for _, v := range a.versions {
		all = append(all, v)
	}
	return all
}

// do queues a task. What the version is doing is seen from now on.
func (a *arena) do(t *task) error {
	t.done = make(chan struct{})
	select {
	case a.queue <- t:
	default:
		return refuse(ArenaBusy, "%d requests are waiting for rank %d", maxTasks, a.rank)
	}
	t.of.task, t.of.state, t.of.err = t, t.kind, nil
	return nil
}

// await waits for what a version is doing, at most as long as told.
func (a *arena) await(ctx context.Context, v *version, wait time.Duration) {
	a.mu.Lock()
	t := v.task
	a.mu.Unlock()
	if t == nil || wait <= 0 {
		return
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-t.done:
	case <-limit.C:
	case <-ctx.Done():
	}
}

func (v *version) answer() VersionAnswer {
	return VersionAnswer{Version: v.number, State: v.state, Slot: v.slot, Error: v.err, Seconds: v.took, Base: v.base}
}

// look describes a version; while it waits for others, with what each slot holds and who reads it.
func (a *arena) look(ctx context.Context, v *version) VersionAnswer {
	a.mu.Lock()
	out := v.answer()
	e := a.engine
	a.mu.Unlock()
	if e == nil {
		return out
	}
	out.Run = e.run().Run
	if out.State == Waiting || out.State == Draining {
		out.Slots = a.holders(ctx, e)
	}
	return out
}

// holdersWait bounds the question who reads; without an answer the slots are shown without.
const holdersWait = 2 * time.Second

func (a *arena) holders(ctx context.Context, e engine) []Slot {
	ctx, cancel := context.WithTimeout(ctx, holdersWait)
	defer cancel()
	var out []Slot
	for i, s := range e.slots() {
		slot := Slot{Slot: i, Version: s.Key.Version, Run: s.Key.Run, State: s.State}
		if !s.Key.IsZero() {
			var err error
			if slot.Holders, err = a.control.Holders(ctx, s.Key); err != nil {
				a.log.Debug("holders not known", "key", s.Key.String(), "error", err)
			}
		}
		out = append(out, slot)
	}
	return out
}

// find is a version that is known.
func (a *arena) find(number uint64) (*version, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v := a.versions[number]; v != nil {
		return v, nil
	}
	return nil, refuse(NotBegun, "version %d of rank %d is not known", number, a.rank)
}

// status describes the arena.
func (a *arena) status(ctx context.Context) ArenaStatus {
	a.mu.Lock()
	out := ArenaStatus{
		Rank: a.rank, World: a.req.World, Job: a.req.Job, External: a.external, Generation: a.answer.Generation,
		Nbytes: a.geometry.layout.Nbytes(), Closing: a.closing != nil,
		Trainer: Trainer{PID: a.owner.pid, Session: a.session},
	}
	if a.owner.pid != 0 {
		alive := a.owner.alive()
		out.Trainer.Alive = &alive
	}
	if !a.owner.gone.IsZero() {
		gone := a.owner.gone
		out.Trainer.Gone = &gone
	}
	for _, v := range a.known() {
		out.Versions = append(out.Versions, v.answer())
	}
	e := a.engine
	a.mu.Unlock()
	slices.SortFunc(out.Versions, func(x, y VersionAnswer) int { return cmp.Compare(x.Version, y.Version) })
	if e != nil {
		out.Run, out.Slots = e.run().Run, a.holders(ctx, e)
	}
	return out
}

func (a *arena) key(number uint64) messages.Key {
	return messages.Key{Run: a.engine.run().Run, Version: number}
}
