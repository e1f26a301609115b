package sidecar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// work does one task after the other until ctx ends or the arena does. What is queued then fails. joining bounds the wait
// for the run.
func (a *arena) work(ctx, joining context.Context) {
	for {
		select {
		case <-ctx.Done():
		case t := <-a.queue:
			a.finish(t, a.perform(ctx, joining, t))
			if t.kind != "" || ctx.Err() == nil && a.isOpen() {
				continue
			}
		}
		for {
			select {
			case t := <-a.queue:
				a.finish(t, refuse(ArenaBusy, "the arena of rank %d has ended", a.rank))
				continue
			default:
			}
			return
		}
	}
}

// isOpen says whether the arena still has its memory, such as after an end that readers did not allow.
func (a *arena) isOpen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closing == nil
}

// finish notes what became of a task. A version that failed to drain is asked to do so again.
func (a *arena) finish(t *task, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer close(t.done)
	v := t.of
	if v == nil {
		return
	}
	if v.task == t {
		v.task = nil
	}
	if err != nil {
		v.err = coded(err)
		a.log.Warn("version failed", "version", v.number, "at", string(t.kind), "code", string(v.err.Code), "error", err)
		if v.task == nil {
			v.state = Failed
		}
		return
	}
	if v.task == nil {
		v.state = map[State]State{Waiting: Filling, Publishing: Committed, Draining: Drained}[t.kind]
	}
}

// perform does one task, with the run joined.
func (a *arena) perform(ctx, joining context.Context, t *task) error {
	if t.kind == "" {
		return a.end(ctx)
	}
	e, err := a.joined(joining)
	if err != nil {
		return err
	}
	if t.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, t.parent)
	}
	v, began := t.of, time.Now()
	switch t.kind {
	case Waiting:
		return a.claim(ctx, e, v, began)
	case Publishing:
		if err := a.publishable(v); err != nil {
			return err
		}
		return a.publishTask(ctx, e, t, began)
	default:
		return e.retire(ctx, v.number)
	}
}

func (a *arena) publishTask(ctx context.Context, e engine, t *task, began time.Time) error {
	v := t.of
	c, err := a.changes(ctx, e, t)
	if err != nil {
		return err
	}
	m, err := e.publish(ctx, v.number, c)
	if errors.Is(err, messages.ErrConflict) {
		err = endConflicting(ctx, a.control, a.key(v.number), a.rank, err)
	}
	a.note(func() {
		v.took.Publish = time.Since(began).Seconds()
		if err == nil && m != nil {
			ref := m.Ref()
			v.ref = &ref
			if v.base = nil; m.Base != nil {
				v.base = &m.Base.Key.Version
			}
		}
	})
	return err
}

// changes are what a version says of itself. A base that is not known, such as one that was withdrawn in an earlier life of
// this sidecar, or never was committed, is left out: the slot holds everything, so the version is published whole.
func (a *arena) changes(ctx context.Context, e engine, t *task) (content, error) {
	c := content{digests: t.digests}
	if t.base == nil {
		return c, nil
	}
	key := messages.Key{Run: e.run().Run, Version: *t.base}
	ref, err := a.refOf(ctx, key)
	if err != nil {
		return c, err
	}
	if ref == nil {
		a.log.Warn("published whole: its base is not known", "version", t.of.number, "base", key.String())
		return c, nil
	}
	c.base, c.changed = ref, t.changed
	return c, nil
}

// refOf names a committed version exactly, from memory or by its manifest; nil where neither has it.
func (a *arena) refOf(ctx context.Context, key messages.Key) (*messages.Ref, error) {
	var known *messages.Ref
	a.note(func() {
		if v := a.versions[key.Version]; v != nil {
			known = v.ref
		}
	})
	if known != nil {
		return known, nil
	}
	all, err := a.control.Versions(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for base version %s: %w", key, err)
	}
	for _, x := range all {
		if x.Key == key && x.Manifest != nil {
			ref := x.Manifest.Ref()
			return &ref, nil
		}
	}
	return nil, nil
}

func (a *arena) claim(ctx context.Context, e engine, v *version, began time.Time) error {
	slot, err := e.claim(ctx, v.number, v.slot)
	if err != nil {
		return err
	}
	a.note(func() {
		v.slot, v.took.Wait = slot, time.Since(began).Seconds()
		for _, other := range a.versions { // what lay there is gone
			if other != v && other.slot == slot && other.task == nil && other.state != Failed {
				other.state = Drained
			}
		}
	})
	return nil
}

// publishable refuses a version whose claim failed after it was asked to be published.
func (a *arena) publishable(v *version) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v.err != nil {
		return v.err
	}
	return nil
}

func (a *arena) note(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// joined is the engine. It is tried again after a failure, since rank 0 may come later than the others.
func (a *arena) joined(ctx context.Context) (engine, error) {
	a.mu.Lock()
	e := a.engine
	a.mu.Unlock()
	if e != nil {
		return e, nil
	}
	e, err := a.open(ctx)
	if err != nil {
		return nil, joinError(err)
	}
	bounded, cancel := context.WithTimeout(ctx, a.drain)
	defer cancel()
	if err := withdrawEarlier(bounded, a.control, e.run().Run, a.rank, a.log); err != nil {
		return nil, errors.Join(err, e.close())
	}
	a.log.Info("run joined", "run", e.run().Run, "job", a.req.Job)
	a.note(func() { a.engine = e })
	return e, nil
}

// joinError says that a run may be joined later, except where the launch contradicts the run.
func joinError(err error) error {
	e := *coded(err)
	switch {
	case errors.Is(err, messages.ErrConflict):
		e.Code = BadRequest
	case e.Code != NoMemory && e.Code != Denied && e.Code != Fenced:
		e.Retry = true
	}
	return &e
}

// close asks for the arena's end: its versions are withdrawn, and when nobody reads them any more its memory goes.
func (a *arena) close() *task {
	a.giveUp()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing == nil {
		t := &task{done: make(chan struct{})}
		select {
		case a.queue <- t:
			a.closing = t
		default: // full: the next look tries again
			close(t.done)
			return t
		}
	}
	return a.closing
}

// end withdraws what is served and closes. Where readers don't let go in time everything stays, and is tried again.
func (a *arena) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.drain)
	defer cancel()
	a.mu.Lock()
	e := a.engine
	a.mu.Unlock()
	if e != nil {
		var errs []error
		for _, s := range e.slots() {
			if !s.Key.IsZero() {
				errs = append(errs, e.retire(ctx, s.Key.Version))
			}
		}
		if err := errors.Join(errs...); errors.Is(err, messages.ErrHeld) {
			a.log.Warn("arena kept: it is still read", "error", err)
			a.note(func() { a.closing = nil })
			return err
		} else if err != nil {
			a.log.Warn("versions not withdrawn", "error", err)
		}
	}
	return a.release(true)
}

// release gives memory and engine back; with remove the files go too. It may be repeated.
func (a *arena) release(remove bool) error {
	a.mu.Lock()
	e := a.engine
	a.engine = nil
	a.mu.Unlock()
	var errs []error
	if e != nil {
		errs = append(errs, e.close())
	}
	if a.files != nil {
		errs = append(errs, a.files.close(remove))
	}
	err := errors.Join(errs...)
	a.log.Info("arena released", "removed", remove, "error", err)
	return err
}
