package vllm

import (
	"context"
	"errors"
	"fmt"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// checkpointLabel is what a server shows that was never told a version.
const checkpointLabel = "default"

// settling says how an update that was left open is to be closed.
type settling struct {
	forward bool   // keep a version that every rank has applied; else go back from it
	paused  bool   // the engine may be paused, by us
	before  string // label before the update; empty: not known
}

// settle closes whatever is open: ends the update, brings all ranks to one version, names it, lets the engine answer.
// Errors: ErrBroken, and then it stays paused; anything else, and then how far it came is not known. It may be repeated.
func (i *Installer) settle(ctx context.Context, how settling) error {
	list, err := i.shut(ctx)
	if err != nil {
		return err
	}
	if list, err = i.unite(ctx, list, how.forward); err != nil {
		return err
	}
	serving, ok := whole(list)
	if !ok {
		return fmt.Errorf("%w: %s", ErrBroken, complaint(list, func(*status) bool { return false }))
	}
	if err := i.relabel(ctx, serving, how.before); err != nil {
		return err
	}
	if how.paused {
		if err := i.resetCache(ctx); err != nil {
			return err
		}
		if err := i.resume(ctx); err != nil {
			return err
		}
	}
	_, err = i.rpc(ctx, i.cfg.CallTimeout, "drydock_done", nil)
	return err
}

// shut ends an update that vLLM has open, without applying it. What is not open must not be finished: that would raise.
func (i *Installer) shut(ctx context.Context) ([]status, error) {
	list, err := i.statuses(ctx)
	if err != nil {
		return nil, err
	}
	open := func(s *status) bool { return s.Open }
	switch {
	case !anyOf(list, open):
		return list, nil
	case !every(list, open):
		return nil, errors.New("ranks disagree on whether an update is open; restart the engine")
	}
	if _, err := i.rpc(ctx, i.cfg.CallTimeout, "drydock_abort", nil); err != nil {
		return nil, err
	}
	if err := i.finish(ctx, i.cfg.CallTimeout); err != nil {
		return nil, err
	}
	return i.statuses(ctx)
}

// unite brings the ranks to one version: back, unless all have gone forward and that is wanted.
func (i *Installer) unite(ctx context.Context, list []status, forward bool) ([]status, error) {
	label := inHand(list)
	_, ok := whole(list)
	gone := label != "" && anyOf(list, func(s *status) bool { return s.Serving == label })
	if ok && (forward || !gone) {
		return list, nil
	}
	i.cfg.Logger.Warn("going back on every rank", "from", label)
	return i.rpc(ctx, i.cfg.ApplyTimeout, "drydock_undo", map[string]string{"label": label})
}

// relabel makes the server show what it serves. Of a checkpoint only the server's own users know the name: theirs stays.
func (i *Installer) relabel(ctx context.Context, serving, before string) error {
	label, err := i.label(ctx)
	if err != nil {
		return err
	}
	if serving == "" {
		serving = label
		if before != "" {
			serving = before
		}
		if _, err := messages.ParseKey(serving); err == nil {
			serving = checkpointLabel // one of ours, of an update that was taken back
		}
	}
	if label == serving {
		return nil
	}
	return i.setLabel(ctx, serving)
}
