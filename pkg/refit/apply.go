package refit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// ErrEnded is returned by Apply for a staged version that was applied or released. Nothing has changed.
var ErrEnded = errors.New("this staged version was applied or released already")

// Apply installs a staged version: the installer first, then the name that readers follow. It is all ranks or none; on
// error the old version serves, the arena is given back, and the error is a *Failure.
func (r *Receiver) Apply(ctx context.Context, s *Staged) error {
	if !s.end() {
		return &Failure{Class: Internal, Op: "apply", Model: r.cfg.Model, Key: s.key, Err: ErrEnded}
	}
	finished := false
	defer func() { // also on a panic below
		if !finished {
			r.arenas.Release(s.slot)
			r.finish(s, tracing.OutcomeAbandoned, nil)
		}
	}()
	report, err := r.apply(s.cycle.Activate(ctx), s)
	finished = true
	if err == nil {
		r.finish(s, tracing.OutcomeApplied, nil)
		r.cfg.Logger.Info("applied", "key", s.key.String(), "pause", report.Pause)
		return nil
	}
	r.arenas.Release(s.slot)
	failure := &Failure{Class: classOf(err), Op: "apply", Model: r.cfg.Model, Key: s.key, Err: err}
	r.finish(s, outcomeOf(failure.Class), failure)
	r.noteFailure(failure)
	return failure
}

// end takes the staged version out of its owner's hands, once.
func (s *Staged) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return false
	}
	s.done = true
	return true
}

func (r *Receiver) finish(s *Staged, outcome tracing.Outcome, err error) {
	if s.owner {
		s.cycle.Finish(outcome, err)
	}
}

func (r *Receiver) apply(ctx context.Context, s *Staged) (report Report, err error) {
	ctx, phase := s.cycle.Phase(ctx, tracing.PhaseApply)
	defer func() { phase.End(err) }()
	select { // one after the other: what is looked at below must still hold at the flip
	case r.applied <- struct{}{}:
		defer func() { <-r.applied }()
	case <-ctx.Done():
		return report, fmt.Errorf("wait for another version to be applied: %w", context.Cause(ctx))
	}
	r.note(func(st *messages.Status) { st.StageState = "applying" })
	if err := r.mayApply(ctx, s); err != nil {
		return report, err
	}
	if report, err = r.install(ctx, s); err != nil {
		return report, err
	}
	r.cfg.Metrics.Pause(r.cfg.Model, report.Pause)
	r.postInstall(ctx, s)
	if report.Ready > 0 {
		s.cycle.AddDuration(tracing.RolloutReadiness, report.Ready, nil)
	} else {
		s.cycle.NotApplicable(tracing.RolloutReadiness, "the installer reports no wait for readiness")
	}
	return report, nil
}

// install has the engine take the version, then flips the name.
func (r *Receiver) install(ctx context.Context, s *Staged) (report Report, err error) {
	ctx, span := s.cycle.Stage(ctx, tracing.Installation)
	defer func() { span.End(err) }()
	in := r.installation(s.key, s.slot)
	if r.cfg.Engine.alone() {
		report, err = r.installAlone(ctx, in)
	} else {
		report, err = r.installTogether(ctx, in, s.order != nil)
	}
	if err != nil {
		return report, err
	}
	flip := time.Now()
	if _, err := r.arenas.Flip(s.slot); err != nil {
		return report, r.cannotFlip(ctx, err)
	}
	if report.Pause == 0 { // an engine that reads by name stands still for no longer than the name is changed
		report.Pause = time.Since(flip)
	}
	span.AddBytes(s.stats.Staged)
	sizes := s.stats.sizes()
	sizes.InstalledBytes = s.stats.Staged + s.stats.Kept
	s.cycle.SetSizes(sizes)
	r.mu.Lock()
	r.serving, r.before, r.distrusted = s.key, s.cycle.SpanContext(), false
	r.mu.Unlock()
	return report, nil
}

// installAlone asks the installer first whether it would, then has it take the version.
func (r *Receiver) installAlone(ctx context.Context, in Installation) (Report, error) {
	if err := r.prepare(ctx, in); err != nil {
		return Report{}, err
	}
	return r.call(ctx, in)
}

// prepare has the installer look at a version, where it can.
func (r *Receiver) prepare(ctx context.Context, in Installation) error {
	p, ok := r.cfg.Installer.(Preparer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.InstallTimeout)
	defer cancel()
	err := p.Prepare(ctx, in)
	if class := classOf(err); err != nil && (class == Deadline || class == Internal && ctx.Err() != nil) {
		return as(EngineUnreachable, err) // nothing was touched
	}
	return installError(ctx, err)
}

// call has the installer take a version. Where it can't tell whether the engine took it, the old one is brought back
// at once. A pause that the installer does not report is the time of its call, unless there is no call to speak of.
func (r *Receiver) call(ctx context.Context, in Installation) (Report, error) {
	bounded, cancel := context.WithTimeout(ctx, r.cfg.InstallTimeout)
	defer cancel()
	start := time.Now()
	report, err := r.cfg.Installer.Install(bounded, in)
	if err != nil {
		err = installError(bounded, err)
		if classOf(err) == EngineUnknown {
			err = withBack(err, r.reinstall(ctx))
		}
		return report, err
	}
	if _, named := r.cfg.Installer.(shm); report.Pause == 0 && !named {
		report.Pause = time.Since(start)
	}
	return report, nil
}

// withBack adds what came of bringing the old version back. The class stays: until somebody asks the engine again, what
// it serves is as it says.
func withBack(err, back error) error {
	if back != nil {
		return fmt.Errorf("%w; and it could not be brought back: %w", err, back)
	}
	return fmt.Errorf("%w (the old version was installed again)", err)
}

// cannotFlip is what is left when the engine took a version whose name can't be flipped to.
func (r *Receiver) cannotFlip(ctx context.Context, err error) error {
	if r.cfg.Engine.alone() {
		return as(InstallRefused, errors.Join(err, r.reinstall(ctx)))
	}
	// The other receivers serve it, so there is no way back: the next attempt finds that, and flips.
	return as(EngineUnknown, fmt.Errorf("the engine serves the version, but its name does not lead to it: %w", err))
}

// installation is what an installer is told of a version in a slot.
func (r *Receiver) installation(key messages.Key, slot *arena.Slot) Installation {
	return Installation{Model: r.cfg.Model, Key: key, Dir: slot.Dir(), Ranks: r.ranks(), Files: r.files(slot)}
}

// errNoWayBack is told where the engine can't be brought back, since nothing was served by name before.
var errNoWayBack = errors.New("there is no older version to go back to")

// reinstall brings the engine back to what serves by name, also when the caller has given up.
func (r *Receiver) reinstall(ctx context.Context) error {
	serving, slot := r.Serving(), r.arenas.Serving()
	if slot == nil {
		return errNoWayBack
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.InstallTimeout)
	defer cancel()
	if _, err := r.cfg.Installer.Install(ctx, r.installation(serving, slot)); err != nil {
		return fmt.Errorf("install %s again: %w", serving, err)
	}
	return nil
}

// mayApply takes a last look at what may have happened since the version was staged.
func (r *Receiver) mayApply(ctx context.Context, s *Staged) (err error) {
	ctx, span := s.cycle.Stage(ctx, tracing.ControlDiscovery)
	defer func() { span.End(err) }()
	if r.isClosed() {
		return fmt.Errorf("receiver %s: %w", r.cfg.Name, ErrClosed)
	}
	return errors.Join(r.checkOrder(s), r.checkFence(ctx, s.key))
}

// checkFence refuses a version of a run that a newer one has fenced since it was staged.
func (r *Receiver) checkFence(ctx context.Context, key messages.Key) error {
	run, found, err := r.cfg.Control.Run(ctx)
	switch {
	case err != nil:
		return controlError("ask which run is the newest", err)
	case found && run.Run > key.Run:
		return as(Superseded, fmt.Errorf("run %d of job %s has fenced run %d", run.Run, run.Job, key.Run))
	}
	return nil
}

// installError gives an installer's error a class, where it has none: a call that was cut off leaves the engine
// unknown, all else is a refusal.
func installError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	switch classOf(err) {
	case InstallRefused, EngineUnreachable, EngineUnknown, NoRoom:
		return err
	}
	if ctx.Err() != nil {
		return as(EngineUnknown, err)
	}
	return as(InstallRefused, err)
}

// postInstall shows the version as served: only now, that every rank has it.
func (r *Receiver) postInstall(ctx context.Context, s *Staged) {
	_, span := s.cycle.Stage(ctx, tracing.PostInstall)
	defer span.End(nil)
	r.cfg.Metrics.Served(r.cfg.Model, s.key.Run, s.key.Version, time.Now())
	r.note(func(st *messages.Status) {
		st.Serving, st.Staging, st.StageState, st.Arenas = s.key, messages.Key{}, "", r.arenas.Names()
	})
}

// Release gives up a staged version. Nothing that serves changes. It may be repeated, and follow Apply.
func (r *Receiver) Release(s *Staged) {
	if !s.end() {
		return
	}
	r.arenas.Release(s.slot)
	r.finish(s, tracing.OutcomeReleased, nil)
	r.note(func(st *messages.Status) {
		if st.Staging == s.key && st.StageState == stateStaged {
			st.Staging, st.StageState = messages.Key{}, ""
		}
	})
}
