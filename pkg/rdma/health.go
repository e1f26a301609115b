package rdma

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrSuspect is returned by Health.Allow for a source that is left alone for now. Nothing was tried.
var ErrSuspect = errors.New("source is suspect")

// HealthConfig says when a source is left alone, and for how long. The zero value is the default.
type HealthConfig struct {
	Failures int                // in a row open the breaker; default 3
	Cooldown time.Duration      // for the first time; doubled at each failed probe; default 2 s
	Longest  time.Duration      // cooldown, and wait for a probe's report; default 2 min
	Now      func() time.Time   // default time.Now
	Changed  func(SourceHealth) // hears of each change of state, in order; called under a lock, so it must not call back
}

// BreakerState says whether a source is read. The values are those of package tracing's metric.
type BreakerState string

// The states.
const (
	BreakerClosed   BreakerState = "closed"    // read
	BreakerHalfOpen BreakerState = "half_open" // one read is under way as a probe
	BreakerOpen     BreakerState = "open"      // left alone; after the cooldown the next to ask is the probe
)

// Health is a breaker for each source, a trainer rank: closed while reads go well, open after failures in a row, half open
// when one read was let through after a cooldown. It lives as long as its receiver and is used by any number of reads:
//
//	h.Meet(rank, incarnation)                      // before a read, when the rank's endpoint is known
//	if err := h.Allow(rank); err != nil { … }      // ask a replica instead, or wait
//	err := read(…)
//	h.Report(rank, err)                            // once for each Allow that returned nil
//
// A read for which there is no replica may be made without Allow, and reported all the same.
type Health struct {
	cfg HealthConfig
	mu  sync.Mutex
	by  map[int]*SourceHealth
}

// SourceHealth is one source's record.
type SourceHealth struct {
	Rank        int
	Incarnation string // the life that failed or went well; "" where it was never told
	State       BreakerState
	Failures    int       // in a row
	Until       time.Time // end of the cooldown, while open
	Last        error     // the last failure; nil where there was none

	cooldown time.Duration
	probed   time.Time // when the probe was let through, while half open
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
	return &Health{cfg: cfg, by: map[int]*SourceHealth{}}
}

// Meet tells which life of a rank is read from now on. Another one than before begins afresh: what failed is gone.
func (h *Health) Meet(rank int, incarnation string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.source(rank)
	if s.Incarnation != "" && s.Incarnation != incarnation {
		s.Failures, s.Last, s.cooldown = 0, nil, h.cfg.Cooldown
		h.turn(s, BreakerClosed)
	}
	s.Incarnation = incarnation
}

// source is the record of a rank, made when it is first asked for.
func (h *Health) source(rank int) *SourceHealth {
	s := h.by[rank]
	if s == nil {
		s = &SourceHealth{Rank: rank, State: BreakerClosed, cooldown: h.cfg.Cooldown}
		h.by[rank] = s
	}
	return s
}

func (h *Health) turn(s *SourceHealth, to BreakerState) {
	if s.State == to {
		return
	}
	s.State = to
	if h.cfg.Changed != nil {
		h.cfg.Changed(*s)
	}
}

// Allow says whether to read from a rank. After a cooldown the first to ask is the probe; it must report its end. A probe
// that never does is given up after the longest cooldown.
func (h *Health) Allow(rank int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.by[rank]
	if s == nil || s.State == BreakerClosed {
		return nil
	}
	if err := h.avoided(s); err != nil {
		return err
	}
	s.probed = h.cfg.Now()
	h.turn(s, BreakerHalfOpen)
	return nil
}

// avoided is why a source that isn't closed may not even be probed; nil when it may.
func (h *Health) avoided(s *SourceHealth) error {
	now := h.cfg.Now()
	switch {
	case s.State == BreakerHalfOpen && now.Sub(s.probed) < h.cfg.Longest:
		return fmt.Errorf("rank %d: %w: a probe is under way after: %w", s.Rank, ErrSuspect, s.Last)
	case s.State == BreakerOpen && now.Before(s.Until):
		return fmt.Errorf("rank %d: %w until %s after: %w", s.Rank, ErrSuspect, s.Until.Format(time.RFC3339), s.Last)
	}
	return nil
}

// Avoid says, without becoming the probe, whether Allow would refuse: what a plan asks when it chooses among replicas.
func (h *Health) Avoid(rank int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.by[rank]
	return s != nil && s.State != BreakerClosed && h.avoided(s) != nil
}

// Report counts the end of a read: nil closes the breaker. An abort, a transport that is unavailable here and a cancelled
// context say nothing of the source, and end a probe without a result. A deadline that passed is a failure.
func (h *Health) Report(rank int, err error) {
	switch k := KindOf(err); {
	case err == nil:
		h.succeeded(rank)
	case k == ErrAborted || k == ErrUnavailable || k == 0 && errors.Is(err, context.Canceled):
		h.undecided(rank)
	default:
		h.failed(rank, err, 1)
	}
}

// Suspect opens the breaker at once, as for a source whose bytes were found corrupt twice.
func (h *Health) Suspect(rank int, err error) { h.failed(rank, err, h.cfg.Failures) }

func (h *Health) succeeded(rank int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.source(rank)
	s.Failures, s.Last, s.cooldown = 0, nil, h.cfg.Cooldown
	h.turn(s, BreakerClosed)
}

// undecided lets the next to ask be the probe.
func (h *Health) undecided(rank int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.by[rank]; s != nil && s.State == BreakerHalfOpen {
		s.Until = h.cfg.Now()
		h.turn(s, BreakerOpen)
	}
}

func (h *Health) failed(rank int, err error, weight int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.source(rank)
	s.Failures += weight
	s.Last = err
	if s.State == BreakerHalfOpen {
		s.cooldown = min(2*s.cooldown, h.cfg.Longest)
	}
	if s.State != BreakerClosed || s.Failures >= h.cfg.Failures {
		s.Until = h.cfg.Now().Add(s.cooldown)
		h.turn(s, BreakerOpen)
	}
}

// State is the state of a rank's breaker.
func (h *Health) State(rank int) BreakerState {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.by[rank]; s != nil {
		return s.State
	}
	return BreakerClosed
}

// Counts is how many of the sources met so far are in each state; all three states are there.
func (h *Health) Counts() map[BreakerState]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := map[BreakerState]int{BreakerClosed: 0, BreakerHalfOpen: 0, BreakerOpen: 0}
	for _, s := range h.by {
		n[s.State]++
	}
	return n
}

// Failing lists the sources that have failed since they last went well, by rank.
func (h *Health) Failing() []SourceHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []SourceHealth
	for _, rank := range slices.Sorted(maps.Keys(h.by)) {
		if s := h.by[rank]; s.Failures > 0 {
			out = append(out, *s)
		}
	}
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
