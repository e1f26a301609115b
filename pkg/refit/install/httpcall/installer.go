package httpcall

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/install"
)

// Installer makes the calls. It is safe for concurrent use.
type Installer struct {
	calls  []*call
	client *http.Client
}

// New checks the steps and reads their templates. Nothing is called yet.
func New(cfg Config) (*Installer, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("make the http installer: %w", err)
	}
	calls, err := newCalls(cfg.Steps)
	if err != nil {
		return nil, fmt.Errorf("make the http installer: %w", err)
	}
	// A connection for each call: on one that was kept, a request that fails may or may not have reached the engine, on a
	// new one it is known. And no proxy of the environment's: engines are near.
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	if cfg.Client != nil {
		*client = *cfg.Client
	}
	// Following a redirect would send a POST as GET, to somebody who was not named.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Installer{calls: calls, client: client}, nil
}

// Install makes the calls in order. When one fails, those before it are undone, and the error says where that leaves the
// engine.
func (h *Installer) Install(ctx context.Context, in refit.Installation) (refit.Report, error) {
	vars := install.VarsOf(in)
	var watch stopwatch
	for i, c := range h.calls {
		watch.before(&c.step)
		a, err := c.do(ctx, h.client, vars)
		if err != nil {
			return refit.Report{}, h.undo(ctx, i, a, err, vars)
		}
		watch.after(&c.step, a)
	}
	return refit.Report{Pause: watch.pause}, nil
}

// undo runs the undoing steps of the call that failed and of those before it, and gives the error its class.
func (h *Installer) undo(ctx context.Context, failed int, a answer, err error, vars install.Vars) error {
	doubt := false
	// Also after the caller's context has ended: an engine must not stay paused. Each step has its own time-out.
	ctx = context.WithoutCancel(ctx)
	for i := failed; i >= 0; i-- {
		c := h.calls[i]
		if i == failed && !a.sent {
			continue // it never began
		}
		doubt = doubt || c.step.Changes && len(c.undo) == 0 && (i < failed || unanswered(err))
		for _, u := range c.undo {
			if _, uerr := u.do(ctx, h.client, vars); uerr != nil {
				doubt = true
				err = fmt.Errorf("%w; and it could not be undone: %w", err, uerr)
			}
		}
	}
	switch {
	case doubt:
		return refit.Unknown(err)
	case unanswered(err):
		return refit.Unreachable(err)
	}
	return refit.Refused(err)
}

// unanswered says whether nobody answered the call that failed. Where somebody did, the answer was no.
func unanswered(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.passing()
}

// stopwatch measures how long an engine stands still: between the marked steps, else as long as the steps that change
// weights take, unless an answer says it.
type stopwatch struct {
	pause  time.Duration
	begun  time.Time // of the step under way
	still  time.Time // of the marked pause; zero: none
	marked bool
	told   bool // by an answer
}

func (w *stopwatch) before(s *Step) {
	w.begun = time.Now()
	if s.Pause == PauseBegins && w.still.IsZero() {
		w.still = w.begun
		if !w.marked && !w.told { // what was taken for the pause until now was not
			w.pause = 0
		}
		w.marked = true
	}
}

func (w *stopwatch) after(s *Step, a answer) {
	switch {
	case a.pause > 0:
		w.pause, w.told = a.pause, true
	case w.told:
	case s.Pause == PauseEnds && !w.still.IsZero():
		w.pause += time.Since(w.still)
		w.still = time.Time{}
	case s.Changes && !w.marked:
		w.pause += time.Since(w.begun)
	}
}
