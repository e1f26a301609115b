package sglang

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/install/internal/rest"
)

// Mode is what happens to requests that run when a version is installed.
type Mode string

// The modes, as SGLang's /pause_generation names them.
const (
	Retract Mode = "retract"  // they give up their caches, and go on with the new weights
	Abort   Mode = "abort"    // they end at once, with what they have
	InPlace Mode = "in_place" // they keep caches of the old weights, and so does whoever shares a prefix with them, until they have ended
)

// ErrStale says that the server has the new weights, but would not flush what the old ones computed. It goes on; until its running
// requests have ended, answers may be computed with prefixes of the version before. The next installation tries again.
var ErrStale = errors.New("the prefix cache holds what the version before computed")

// Config says which server to update, and how. Only URL is needed.
type Config struct {
	URL    string // of the server: http://127.0.0.1:30000
	APIKey string // bearer token, where the server asks for one; default none
	Mode   Mode   // default Retract

	CallTimeout   time.Duration // of a call that does little; default 30 s
	UpdateTimeout time.Duration // of the update, which reads all weights; default 2 min
	FlushTimeout  time.Duration // of all tries to flush the cache; default 5 s
	SettleTimeout time.Duration // of going on after a failure, the caller's context having ended or not; default 15 s

	Client *http.Client // default: one of its own, without a timeout of its own
	Logger *slog.Logger // default none
}

func (c *Config) validate() error {
	base, err := rest.Base(c.URL)
	if err != nil {
		return err
	}
	c.URL = base
	err = rest.Timeouts(
		rest.Timeout{Value: &c.CallTimeout, Standard: 30 * time.Second},
		rest.Timeout{Value: &c.UpdateTimeout, Standard: 2 * time.Minute},
		rest.Timeout{Value: &c.FlushTimeout, Standard: 5 * time.Second},
		rest.Timeout{Value: &c.SettleTimeout, Standard: 15 * time.Second},
	)
	if err != nil {
		return err
	}
	switch c.Mode {
	case "":
		c.Mode = Retract
	case Retract, Abort, InPlace:
	default:
		return fmt.Errorf("mode %q: expected %s, %s or %s", c.Mode, Retract, Abort, InPlace)
	}
	if c.Client == nil {
		c.Client = &http.Client{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Installer is a refit.Installer for one SGLang server. One installation runs at a time.
type Installer struct {
	cfg    Config
	server rest.Server
	token  chan struct{} // holds one while an installation runs

	shape string // the tensors of the version that was installed last; empty: none yet
	stale bool   // the last flush did not succeed
}

// New checks the configuration. It asks the server nothing.
func New(cfg Config) (*Installer, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make SGLang installer: %w", err)
	}
	server := rest.Server{URL: cfg.URL, APIKey: cfg.APIKey, Client: cfg.Client}
	return &Installer{cfg: cfg, server: server, token: make(chan struct{}, 1)}, nil
}

// Install brings a version into the server. See the package comment for the steps.
func (i *Installer) Install(ctx context.Context, in refit.Installation) (refit.Report, error) {
	report, err := i.alone(ctx, in)
	if err != nil {
		return refit.Report{}, fmt.Errorf("install %s in %s: %w", in.Key, i.cfg.URL, err)
	}
	return report, nil
}

// Prepare checks folder and server, and changes nothing.
func (i *Installer) Prepare(ctx context.Context, in refit.Installation) error {
	if _, err := i.checkFolder(in); err != nil {
		return refit.Refused(fmt.Errorf("install %s in %s: %w", in.Key, i.cfg.URL, err))
	}
	if _, err := i.label(ctx); err != nil {
		return rest.Marked(fmt.Errorf("install %s in %s: %w", in.Key, i.cfg.URL, err))
	}
	return nil
}

func (i *Installer) alone(ctx context.Context, in refit.Installation) (report refit.Report, err error) {
	if ctx.Err() != nil { // select would choose by chance
		return report, context.Cause(ctx)
	}
	select {
	case i.token <- struct{}{}:
		defer func() { <-i.token }()
	case <-ctx.Done():
		return report, fmt.Errorf("wait for another installation: %w", context.Cause(ctx))
	}
	shape, err := i.checkFolder(in)
	if err != nil {
		return report, refit.Refused(err)
	}
	found, err := i.label(ctx)
	if err != nil {
		return report, rest.Marked(err)
	}
	if found == in.Key.String() && !i.stale {
		// An earlier life may have ended before it let the server go on; that may be repeated.
		return report, rest.Marked(i.goOn(ctx))
	}
	if report, err = i.swap(ctx, in); err == nil {
		i.shape = shape
	}
	return report, err
}

// swap pauses, updates and goes on; whatever happens, the server is asked to go on.
func (i *Installer) swap(ctx context.Context, in refit.Installation) (report refit.Report, err error) {
	begun := time.Now()
	if err := i.pause(ctx); err != nil {
		return report, i.after(ctx, rest.Marked(err))
	}
	err = i.update(ctx, in)
	i.stale = errors.Is(err, ErrStale)
	if i.stale {
		i.cfg.Logger.Warn("weights installed, cache not flushed", "version", in.Key.String(), "error", err)
		err = nil
	}
	if err != nil {
		return report, i.after(ctx, err)
	}
	if err := i.goOn(ctx); err != nil {
		return report, i.after(ctx, refit.Unknown(err))
	}
	report.Pause = time.Since(begun)
	return report, i.confirm(ctx, in)
}

// after has the server go on after a failure; where it can't be told to, what it does is not known.
func (i *Installer) after(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.cfg.SettleTimeout)
	defer cancel()
	if err := i.goOn(ctx); err != nil {
		return refit.Unknown(fmt.Errorf("%w; going on: %w", why, err))
	}
	return why
}

// update has the server load the folder. Errors are classed: one without an answer leaves weights that nobody knows.
func (i *Installer) update(ctx context.Context, in refit.Installation) error {
	err := i.load(ctx, in)
	switch {
	case err == nil:
		return nil
	case unflushed(err):
		return i.flush(ctx, in)
	case rest.Silent(err):
		return refit.Unknown(err)
	}
	return refit.Refused(err)
}

// flush asks again until the cache is flushed. Loading the same folder again changes nothing, and its answer, unlike that
// of /flush_cache, says whether there was a flush.
func (i *Installer) flush(ctx context.Context, in refit.Installation) error {
	ctx, cancel := context.WithTimeout(ctx, i.cfg.FlushTimeout)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		select {
		case <-ctx.Done():
			return ErrStale
		case <-time.After(wait):
		}
		if err := i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/flush_cache", nil, nil); err != nil {
			return fmt.Errorf("%w: %w", ErrStale, err)
		}
		switch err := i.load(ctx, in); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ErrStale
		case !unflushed(err):
			return refit.Unknown(err)
		}
	}
}

// confirm looks at the label, once the server answers again.
func (i *Installer) confirm(ctx context.Context, in refit.Installation) error {
	found, err := i.label(ctx)
	if err == nil && found != in.Key.String() {
		err = fmt.Errorf("the server shows version %q after it was updated to %s", found, in.Key)
	}
	return refit.Unknown(err)
}

// unflushed says whether an update failed only in the flush of the cache.
func unflushed(err error) bool {
	return rest.Status(err) == http.StatusBadRequest && strings.Contains(err.Error(), "cache was not flushed")
}
