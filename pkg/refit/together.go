package refit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// together performs the rounds of round.go for one apply.
type together struct {
	r       *Receiver
	in      Installation
	bid     bid
	attempt uint64 // of the round that the bid came into
	wake    <-chan struct{}
	gaveUp  bool // this life tried to end the round
}

// installTogether has the engine take the version when all of its receivers have it staged. It returns without an error
// only when every installer has said yes.
func (r *Receiver) installTogether(ctx context.Context, in Installation, back bool) (Report, error) {
	if err := r.prepare(ctx, in); err != nil {
		return Report{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	wake, err := r.cfg.Control.EngineChanges(watching, r.cfg.Engine.Name)
	if err != nil {
		return Report{}, controlError("watch the engine's other receivers", err)
	}
	me := messages.EngineMember{Name: r.cfg.Name, Host: rdma.HostName(r.cfg.Host), Life: r.life, Ranks: in.Ranks, Files: in.Files}
	t := &together{r: r, in: in, wake: wake, bid: bid{me: me, size: r.cfg.Engine.Size, key: in.Key, back: back}}
	r.note(func(st *messages.Status) { st.StageState = "waiting for the engine's other receivers" })
	record, now, err := t.gather(ctx)
	switch {
	case err != nil:
		return Report{}, err
	case now == standCommitted: // all others serve it
		return r.call(ctx, in)
	}
	r.note(func(st *messages.Status) { st.StageState = "applying" })
	for i := range record.Members {
		if m := &record.Members[i]; m.Name != r.cfg.Name {
			t.in.Peers = append(t.in.Peers, Member{Name: m.Name, Host: m.Host, Ranks: m.Ranks, Files: m.Files})
		}
	}
	return t.install(ctx)
}

// gather comes in and waits until all are there. Nothing of the engine is touched.
func (t *together) gather(ctx context.Context) (*messages.EngineRecord, standing, error) {
	limited, cancel := t.patience(ctx)
	defer cancel()
	record, now, err := t.comeIn(limited)
	for err == nil && now == standGathering {
		record, err = t.again(limited, record)
		now = t.look(record)
	}
	switch {
	case err == nil && now == standReplaced:
		return nil, now, t.namesake(ctx, record)
	case err == nil && now == standSuperseded, err == nil && now == standAborted && record.Attempt != t.attempt && record.Key != t.bid.key:
		return nil, now, as(Superseded, fmt.Errorf("engine %s: version %s is wanted instead", record.Engine, record.Key))
	case err == nil && now == standAborted:
		return nil, now, t.refusal(record)
	case err == nil && now == standInstalling:
		return record, now, t.stillWanted(ctx)
	case err == nil:
		return record, now, nil
	case limited.Err() == nil: // not for want of time
		return nil, now, agreeError(err)
	}
	if t.attempt == 0 {
		return nil, now, t.late(ctx, record, err)
	}
	// Its own patience is over: the others need not wait for theirs. Perhaps the last one has come in meanwhile.
	record, aerr := t.abort(ctx, t.lateReason(ctx, record), false)
	if aerr == nil && t.look(record) == standInstalling {
		return record, standInstalling, nil
	}
	return nil, now, t.late(ctx, record, errors.Join(err, aerr))
}

// agreeError is an error of the control plane, where it is not marked with a class already.
func agreeError(err error) error {
	var marked *classed
	if errors.As(err, &marked) {
		return err
	}
	return controlError("agree with the engine's other receivers", err)
}

// stillWanted looks once more whether the run was fenced: gathering may have taken minutes.
func (t *together) stillWanted(ctx context.Context) error {
	err := t.r.checkFence(ctx, t.bid.key)
	if err != nil {
		_, aerr := t.abort(ctx, err.Error(), classOf(err) == Superseded)
		return t.told(err, aerr)
	}
	return nil
}

// comeIn makes the bid, until it is part of a round or there is nothing to agree on.
func (t *together) comeIn(ctx context.Context) (record *messages.EngineRecord, now standing, err error) {
	if err := t.settle(ctx); err != nil {
		return nil, 0, err
	}
	for {
		record, err = t.change(ctx, func(r *messages.EngineRecord) (next *messages.EngineRecord, err error) {
			next, now, err = join(r, t.bid)
			return next, as(GroupRefused, err)
		})
		if err != nil {
			return record, now, err
		}
		if now != standWaiting {
			t.attempt = record.Attempt
			return record, now, nil
		}
		if err := t.pause(ctx); err != nil {
			return record, now, err
		}
	}
}

// settle finds out how a round ended whose end this receiver did not learn, and brings its engine where the others' are.
func (t *together) settle(ctx context.Context) error {
	if t.r.doubtful == 0 {
		return nil
	}
	record, err := t.change(ctx, nil)
	if err != nil {
		return err
	}
	if now := look(record, t.r.doubtful, &t.bid.me); now == standAborted || now == standReplaced {
		if err := t.r.reinstall(ctx); err != nil {
			return as(EngineUnknown, err)
		}
	}
	t.r.doubtful = 0
	return nil
}

// install has the own ranks take the version, and waits for the others' yes.
func (t *together) install(ctx context.Context) (Report, error) {
	report, err := t.r.call(ctx, t.in)
	if err != nil {
		_, aerr := t.abort(ctx, err.Error(), classOf(err) == InstallRefused)
		return report, t.told(err, aerr)
	}
	limited, cancel := t.patience(ctx)
	defer cancel()
	record, err := t.change(limited, func(r *messages.EngineRecord) (*messages.EngineRecord, error) {
		return installed(r, t.attempt, &t.bid.me), nil
	})
	for err == nil && t.look(record) == standInstalling {
		record, err = t.again(limited, record)
	}
	if err != nil { // out of time, or told to stop, or cut off
		record, err = t.abort(ctx, t.lateReason(ctx, record), false)
	}
	switch {
	case err != nil:
		t.r.doubtful = t.attempt
		return report, as(EngineUnknown, fmt.Errorf("engine %s took the version here; how the round ended can't be learnt: %w", t.r.cfg.Engine.Name, err))
	case t.look(record) == standCommitted:
		return report, nil
	case t.look(record) == standReplaced:
		err = t.namesake(ctx, record)
	default:
		err = t.refusal(record)
	}
	if back := t.r.reinstall(ctx); back != nil {
		return report, as(EngineUnknown, withBack(err, back))
	}
	return report, err
}

// look says where the round is that the bid came into.
func (t *together) look(record *messages.EngineRecord) standing {
	return look(record, t.attempt, &t.bid.me)
}

// namesake ends a round in which another process stands in this one's place, for both: see namesakes. A round that is
// committed already is the others' business; this receiver stays on the old version.
func (t *together) namesake(ctx context.Context, record *messages.EngineRecord) error {
	why := namesakes(&t.bid.me, replaced(record, &t.bid.me))
	_, aerr := t.abort(ctx, why, true)
	return as(GroupRefused, t.told(fmt.Errorf("engine %s: %s", record.Engine, why), aerr))
}

// told adds that the others could not be told.
func (t *together) told(err, aerr error) error {
	if aerr == nil {
		return err
	}
	return fmt.Errorf("%w; and the engine's other receivers could not be told: %w", err, aerr)
}

// refusal is why a round was aborted, for those that did not abort it.
func (t *together) refusal(record *messages.EngineRecord) error {
	if record.Attempt != t.attempt {
		return as(GroupLate, fmt.Errorf("engine %s: another round began before this one was complete", record.Engine))
	}
	class := GroupLate
	if record.Final {
		class = GroupRefused
	}
	switch {
	case record.By != t.bid.me.Name:
	case t.gaveUp || record.Final:
		return as(class, fmt.Errorf("engine %s: %s", record.Engine, record.Reason))
	default:
		return as(class, fmt.Errorf("engine %s: another process called %s ended the round (%s): if that is no next life of this one, it needs a name of its own",
			record.Engine, record.By, record.Reason))
	}
	return as(class, fmt.Errorf("engine %s: receiver %s: %s", record.Engine, record.By, record.Reason))
}

// lateReason is what the others read when this one gives up.
func (t *together) lateReason(ctx context.Context, record *messages.EngineRecord) string {
	switch {
	case ctx.Err() != nil:
		return "it was stopped"
	case record == nil:
		return "it could not learn how the others stand"
	}
	return fmt.Sprintf("it waited %v for %s", t.r.cfg.Engine.Patience, missing(record))
}

// late is this one's own error when it gives up.
func (t *together) late(ctx context.Context, record *messages.EngineRecord, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if record == nil {
		return agreeError(err)
	}
	if t.attempt == 0 {
		return as(GroupLate, fmt.Errorf("engine %s: waited %v for the installation of %s to end, in which %s take part",
			record.Engine, t.r.cfg.Engine.Patience, record.Key, memberNames(record)))
	}
	return t.refusal(record)
}

// abort ends the round, unless it is decided. It returns the record as it is then. It is done also when ctx has ended.
func (t *together) abort(ctx context.Context, reason string, final bool) (*messages.EngineRecord, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.r.cfg.Stall)
	defer cancel()
	t.gaveUp = true
	return t.change(ctx, func(r *messages.EngineRecord) (*messages.EngineRecord, error) {
		return abort(r, t.attempt, t.bid.me.Name, reason, final), nil
	})
}

// change applies f to the engine's record by compare-and-set, again and again while others are faster, and returns the
// record as it stands. A nil f, and a nil from it, only read. What may or may not have been written is read again.
func (t *together) change(ctx context.Context, f func(*messages.EngineRecord) (*messages.EngineRecord, error)) (*messages.EngineRecord, error) {
	for {
		record, seq, err := t.r.cfg.Control.Engine(ctx, t.r.cfg.Engine.Name)
		if err != nil || f == nil {
			return record, err
		}
		next, err := f(record)
		if err != nil || next == nil {
			return record, err
		}
		err = t.r.cfg.Control.PutEngine(ctx, next, seq)
		switch {
		case err == nil:
			return next, nil
		case errors.Is(err, messages.ErrConflict), errors.Is(err, messages.ErrUnavailable) && ctx.Err() == nil:
			continue
		}
		return record, err
	}
}

// patience bounds a wait for the others.
func (t *together) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, t.r.cfg.Engine.Patience)
}

// again waits until the record may have changed, and reads it. On error it is as it was read last.
func (t *together) again(ctx context.Context, last *messages.EngineRecord) (*messages.EngineRecord, error) {
	if err := t.pause(ctx); err != nil {
		return last, err
	}
	record, err := t.change(ctx, nil)
	if err != nil {
		return last, err
	}
	return record, nil
}

// pause waits until the record may have changed.
func (t *together) pause(ctx context.Context) error {
	select {
	case <-t.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// restoreEngine has the engine take what serves by name, once, after a start: it may have been started anew since, or
// hold a version whose installation was cut off. It is tried until it succeeds, something newer is applied, or ctx ends.
func (r *Receiver) restoreEngine(ctx context.Context) {
	if _, named := r.cfg.Installer.(shm); named || r.arenas.Serving() == nil {
		return
	}
	serving := r.Serving()
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		done, err := r.restoreOnce(ctx, serving)
		if done || ctx.Err() != nil {
			return
		}
		r.cfg.Logger.Warn("the engine does not take what serves by name; it is asked again", "key", serving.String(), "error", err)
		again := time.NewTimer(delay)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return
		}
	}
}

// restoreOnce makes one attempt, under the token of applies. done: there is nothing to be done any more.
func (r *Receiver) restoreOnce(ctx context.Context, serving messages.Key) (done bool, err error) {
	select {
	case r.applied <- struct{}{}:
		defer func() { <-r.applied }()
	case <-ctx.Done():
		return true, nil
	}
	if r.Serving() != serving || r.isDistrusted() {
		return true, nil
	}
	if !r.cfg.Engine.alone() {
		record, err := r.leaveRound(ctx)
		if err != nil {
			return false, err
		}
		if !record.Served.IsZero() && record.Served != serving {
			return true, nil // the others went on while this one was gone: it follows
		}
	}
	bounded, cancel := context.WithTimeout(ctx, r.cfg.InstallTimeout)
	defer cancel()
	if _, err := r.cfg.Installer.Install(bounded, r.installation(serving, r.arenas.Serving())); err != nil {
		return false, err
	}
	r.cfg.Logger.Info("the engine has what serves by name", "key", serving.String())
	return true, nil
}

// leaveRound ends a round that an earlier life of this receiver takes part in: its engine is about to get the old version.
func (r *Receiver) leaveRound(ctx context.Context) (*messages.EngineRecord, error) {
	t := &together{r: r}
	return t.change(ctx, func(record *messages.EngineRecord) (*messages.EngineRecord, error) {
		if !takesPart(record, r.cfg.Name) {
			return nil, nil
		}
		return abort(record, record.Attempt, r.cfg.Name, restarted, false), nil
	})
}

func (r *Receiver) isDistrusted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.distrusted
}
