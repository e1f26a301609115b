package vllm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// Install brings a version into the engine, all ranks or none. See the package comment for the steps.
func (i *Installer) Install(ctx context.Context, in refit.Installation) (report refit.Report, err error) {
	err = i.alone(ctx, in, func(u *update) error {
		report, err = u.swap(ctx)
		return err
	})
	return report, err
}

// Prepare checks the version against the engine and touches nothing: each rank looks at its file.
func (i *Installer) Prepare(ctx context.Context, in refit.Installation) error {
	return i.alone(ctx, in, func(u *update) error {
		return refit.Unknown(i.settle(ctx, settling{}))
	})
}

// Recover settles what an earlier life of this installer left open: an update that is begun, an engine that is paused.
// Install does it too; a program that starts need not wait for the next version with it.
func (i *Installer) Recover(ctx context.Context) error {
	if err := i.take(ctx); err != nil {
		return err
	}
	defer func() { <-i.token }()
	_, err := i.look(ctx)
	if errors.Is(err, ErrBroken) {
		return refit.Unknown(err)
	}
	return marked(err)
}

func (i *Installer) take(ctx context.Context) error {
	if ctx.Err() != nil { // select would choose by chance
		return context.Cause(ctx)
	}
	select {
	case i.token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another installation: %w", context.Cause(ctx))
	}
}

// update is one version on its way into the engine.
type update struct {
	i      *Installer
	in     refit.Installation
	files  []announcement // by tensor-parallel rank
	engine *engine
	paused bool // by us, or perhaps by us
}

// engine is what was found before an update.
type engine struct {
	list   []status
	label  string
	broken bool // no whole version: it is paused, and any version mends it
}

// alone looks and checks, then has act go on, unless the engine serves the version already. What act returns is classed.
func (i *Installer) alone(ctx context.Context, in refit.Installation, act func(*update) error) error {
	if err := i.take(ctx); err != nil {
		return fmt.Errorf("install %s: %w", in.Key, err)
	}
	defer func() { <-i.token }()
	u := &update{i: i, in: in}
	served, err := u.look(ctx)
	if err == nil && !served {
		if err = u.check(ctx); err != nil {
			err = u.giveUp(ctx, err)
		} else {
			err = act(u)
		}
	}
	if err != nil {
		return fmt.Errorf("install %s in %s: %w", in.Key, i.cfg.URL, err)
	}
	return nil
}

// look finds out what the engine is and serves, and whether the version fits its ranks.
func (u *update) look(ctx context.Context) (served bool, err error) {
	if u.files, err = u.i.announce(ctx, u.in); err != nil {
		return false, refit.Refused(err)
	}
	u.engine, err = u.i.look(ctx)
	if err != nil && !errors.Is(err, ErrBroken) {
		return false, marked(err)
	}
	u.engine.broken = err != nil
	u.paused = u.engine.broken
	e, label := u.engine, u.in.Key.String()
	if tp := e.list[0].TPSize; tp != len(e.list) || tp != len(u.files) {
		return false, refit.Refused(fmt.Errorf("the engine has %d workers of tensor parallel %d, the version has files of %d ranks",
			len(e.list), tp, len(u.files)))
	}
	if e.broken {
		return false, nil
	}
	if serving, _ := whole(e.list); serving != label {
		return false, nil
	}
	if e.label != label { // an earlier life ended between apply and label
		return true, marked(u.i.setLabel(ctx, label))
	}
	return true, nil
}

// look settles what was left open and says what the engine serves now. With ErrBroken the engine is valid too.
func (i *Installer) look(ctx context.Context) (*engine, error) {
	if err := i.contact(ctx); err != nil {
		return nil, err
	}
	world, err := i.world(ctx)
	if err != nil {
		return nil, err
	}
	e := &engine{}
	if e.list, err = i.statuses(ctx); err != nil {
		return nil, err
	}
	if world != len(e.list) {
		return nil, fmt.Errorf("the engine has %d workers, %d answer: data parallel replicas need a server each", world, len(e.list))
	}
	if err := i.mine(e.list); err != nil {
		return nil, err
	}
	paused, err := i.isPaused(ctx)
	if err != nil {
		return nil, err
	}
	if paused && inHand(e.list) == "" {
		return nil, ErrPaused
	}
	var broken error
	if inHand(e.list) != "" || anyOf(e.list, func(s *status) bool { return s.Open }) {
		i.cfg.Logger.Warn("settling an update that was left open", "version", inHand(e.list), "paused", paused)
		broken = i.settle(ctx, settling{forward: true, paused: paused})
		if broken != nil && !errors.Is(broken, ErrBroken) {
			return nil, broken
		}
		if e.list, err = i.statuses(ctx); err != nil {
			return nil, err
		}
	}
	if e.label, err = i.label(ctx); err != nil {
		return nil, err
	}
	return e, broken
}

// mine refuses an engine that another owner updates.
func (i *Installer) mine(list []status) error {
	for k := range list {
		if o := list[k].Owner; o != "" && o != i.cfg.Owner && !i.cfg.TakeOver {
			return fmt.Errorf("%w: owner %q, this is %q: give each engine one receiver, or take it over explicitly", ErrOwned, o, i.cfg.Owner)
		}
	}
	return nil
}

// check has every rank look at its file. The engine answers requests meanwhile.
func (u *update) check(ctx context.Context) error {
	if err := u.claim(ctx); err != nil {
		return err
	}
	if err := u.i.start(ctx); err != nil {
		return err
	}
	list := make([]announcement, len(u.engine.list))
	for k := range list {
		s := &u.engine.list[k]
		if s.TPRank < 0 || s.TPRank >= len(u.files) {
			return fmt.Errorf("worker %d is tensor-parallel rank %d of %d", k, s.TPRank, len(u.files))
		}
		list[k] = u.files[s.TPRank]
		if serving, err := messages.ParseKey(s.Serving); err == nil && u.in.Key.Less(serving) {
			list[k].Back = true // the receiver knows why: an order, or the way back after a failure elsewhere
		}
	}
	if list[0].Back {
		u.i.cfg.Logger.Warn("going back to an older version", "from", u.engine.list[0].Serving, "to", u.in.Key.String())
	}
	if err := u.i.update(ctx, list); err != nil {
		return err
	}
	found, err := u.i.statuses(ctx)
	if err != nil {
		return err
	}
	label := u.in.Key.String()
	staged := func(s *status) bool { return s.Staged == label && s.Error == "" }
	if !every(found, staged) {
		return errors.New(complaint(found, staged))
	}
	return nil
}

// claim makes this installer the engine's owner, where it is not.
func (u *update) claim(ctx context.Context) error {
	root := u.i.cfg.Root
	if root == "" {
		root = filepath.Dir(filepath.Clean(u.in.Dir))
	}
	claimed := func(s *status) bool { return s.Owner == u.i.cfg.Owner && s.Root == root }
	if every(u.engine.list, claimed) {
		return nil
	}
	if err := u.i.init(ctx, root); err != nil {
		return err
	}
	found, err := u.i.statuses(ctx)
	if err != nil {
		return err
	}
	if err := u.i.mine(found); err != nil {
		return err
	}
	if !every(found, claimed) {
		return errors.New("claim the engine: " + complaint(found, claimed))
	}
	return nil
}

// swap stops the engine, has every rank apply, names the version and lets the engine go on.
func (u *update) swap(ctx context.Context) (report refit.Report, err error) {
	begun, err := u.stop(ctx)
	if err == nil {
		err = u.apply(ctx)
	}
	if err == nil {
		err = u.i.resume(ctx)
	}
	if err != nil {
		return refit.Report{}, u.giveUp(ctx, err)
	}
	report.Pause = time.Since(begun)
	if _, err := u.i.rpc(ctx, u.i.cfg.CallTimeout, "drydock_done", nil); err != nil {
		u.i.cfg.Logger.Warn("the update is installed, but not closed: the next one closes it", "error", err)
	}
	return report, nil
}

// stop pauses the engine, and says since when it answers nobody.
func (u *update) stop(ctx context.Context) (begun time.Time, err error) {
	if !u.engine.broken {
		paused, err := u.i.isPaused(ctx)
		if err != nil {
			return begun, err
		}
		if paused {
			return begun, ErrPaused
		}
	}
	u.paused = true
	begun = time.Now()
	err = u.i.pause(ctx)
	if u.i.cfg.Drain == Wait { // running requests were answered until now
		begun = time.Now()
	}
	return begun, err
}

func (u *update) apply(ctx context.Context) error {
	if err := u.i.finish(ctx, u.i.cfg.ApplyTimeout); err != nil {
		return err
	}
	found, err := u.i.statuses(ctx)
	if err != nil {
		return err
	}
	label := u.in.Key.String()
	applied := func(s *status) bool { return s.State == stateApplied && s.Serving == label }
	if !every(found, applied) {
		return errors.New(complaint(found, applied))
	}
	if err := u.i.setLabel(ctx, label); err != nil {
		return err
	}
	return u.i.resetCache(ctx)
}

// giveUp settles after a failure and classes it: where the engine is back on what it served, by why it failed; else unknown.
// The caller's context may have ended, and still the engine must not stay paused.
func (u *update) giveUp(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.i.cfg.SettleTimeout)
	defer cancel()
	err := u.i.settle(ctx, settling{paused: u.paused, before: u.engine.label})
	if err != nil {
		return refit.Unknown(fmt.Errorf("%w; going back: %w", why, err))
	}
	return marked(why)
}
