package rdma

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrSuspect is returned by Health.Allow for a source that is left alone for now. Nothing was tried.
var ErrSuspect = errors.New("source is suspect")

// HealthConfig says when a source is left alone, and for how long. The zero value is the default.
type HealthConfig struct {
	Failures int              // in a row open the breaker; default 3
	Cooldown time.Duration    // for the first time; doubled at each failed probe; default 2 s
	Longest  time.Duration    // cooldown; default 2 min
	Now      func() time.Time // default time.Now
}

// Health is a breaker for each source: closed while reads go well, open after failures, half open after a cooldown,
// when one read is let through as a probe. A source is named by the caller, with its incarnation: a restarted one
// begins afresh.
type Health struct {
	cfg HealthConfig
	mu  sync.Mutex
	by  map[string]*SourceHealth
}

// SourceHealth is one source's record.
type SourceHealth struct {
	Source   string
	Failures int       // in a row
	Open     bool      // left alone, but for a probe after Until
	Until    time.Time // end of the cooldown
	Last     error     // the last failure

	cooldown time.Duration
	probing  bool
}

// NewHealth makes a record without sources.
func NewHealth(cfg HealthConfig) *Health {
	if cfg.Failures <= 0 {
		cfg.Failures = 3
	}
	if cfg.Cooldown <= 0 {
		cfg.Cooldown = 2 * time.Second
	}
	if cfg.Longest <= 0 {
		cfg.Longest = 2 * time.Minute
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Health{cfg: cfg, by: map[string]*SourceHealth{}}
}

// Allow says whether to read from a source. After a cooldown the first to ask is the probe, and must report its end by
// OK or Failed.
func (h *Health) Allow(source string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.by[source]
	switch {
	case s == nil || !s.Open:
		return nil
	case s.probing:
		return fmt.Errorf("%s: %w: a probe is under way after: %w", source, ErrSuspect, s.Last)
	case h.cfg.Now().Before(s.Until):
		return fmt.Errorf("%s: %w until %s after: %w", source, ErrSuspect, s.Until.Format(time.RFC3339), s.Last)
	}
	s.probing = true
	return nil
}

// OK closes the breaker.
func (h *Health) OK(source string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, source)
}

// Failed counts a failure, if it is one of the source: an abort, an unavailable transport and the end of a context
// say nothing of it, but end a probe.
func (h *Health) Failed(source string, err error) {
	k := KindOf(err)
	if k == 0 || k == ErrAborted || k == ErrUnavailable {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s := h.by[source]; s != nil {
			s.probing = false
		}
		return
	}
	h.fail(source, err, 1)
}

// Suspect opens the breaker at once, as for a source whose bytes were found corrupt.
func (h *Health) Suspect(source string, err error) { h.fail(source, err, h.cfg.Failures) }

func (h *Health) fail(source string, err error, weight int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.by[source]
	if s == nil {
		s = &SourceHealth{Source: source, cooldown: h.cfg.Cooldown}
		h.by[source] = s
	}
	s.Failures += weight
	s.Last = err
	if s.Open && s.probing {
		s.cooldown = min(2*s.cooldown, h.cfg.Longest)
	}
	s.probing = false
	if s.Open || s.Failures >= h.cfg.Failures {
		s.Open = true
		s.Until = h.cfg.Now().Add(s.cooldown)
	}
}

// Snapshot lists the sources that have failed since they last went well, by name.
func (h *Health) Snapshot() []SourceHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]SourceHealth, 0, len(h.by))
	for _, s := range h.by {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b SourceHealth) int { return strings.Compare(a.Source, b.Source) })
	return out
}

// Replaceable says whether after err the same bytes may be read from a replica: it is about the source or its bytes,
// and not about this process.
func Replaceable(err error) bool {
	switch KindOf(err) {
	case ErrUnreachable, ErrTimeout, ErrReset, ErrRefused, ErrStale, ErrFalseCompletion, ErrProtocol:
		return true
	default: // aborted, unavailable; quarantined: the destination may still be written
		return false
	}
}
