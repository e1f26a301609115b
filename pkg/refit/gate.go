package refit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// gate admits readers to slots: who holds a live lease on the version that a slot holds may read it. It protects readers
// that have lost their claim, or never made one, from bytes that are overwritten under them; not against forged names, which
// capability and TLS are for.
//
// The server is asked for the leases on a version when a reader is met, and again from time to time. What a slot holds is
// known here, so that a version that was drained is refused at once.
type gate struct {
	holders func(context.Context, messages.Key) ([]string, error) // receivers with a live lease
	keys    func() []messages.Key                                 // what the slots hold, zero for nothing
	slot    func(region uint32) int                               // -1: of none
	now     func() time.Time
	pause   func(time.Duration)
	log     *slog.Logger

	mu    sync.Mutex
	known map[messages.Key]*claims
}

// claims is what is known of the leases on one version.
type claims struct {
	asking sync.Mutex // held while the server is asked: those who don't find themselves known wait for the answer

	mu    sync.Mutex
	names []string
	asked time.Time // when the last answer was asked for
}

const (
	gateFresh = 5 * time.Second       // so long a lease that was seen counts: a fraction of its own life
	gateAgain = 50 * time.Millisecond // between two questions about one version, whoever comes
	gateWait  = 2 * time.Second       // for an answer
)

var errNoLease = errors.New("no live lease")

// admit is what transports ask, with the name under which a reader claims and the regions it wants; none at its connect.
func (g *gate) admit(reader string, regions []uint32) error {
	keys := g.keys()
	if len(regions) == 0 {
		return g.admitAny(reader, keys)
	}
	for k, region := range regions {
		if k > 0 && region == regions[k-1] {
			continue
		}
		i := g.slot(region)
		if i < 0 || keys[i].IsZero() {
			return fmt.Errorf("region %d holds no version: %w", region, errNoLease)
		}
		if !g.holds(reader, keys[i]) {
			return fmt.Errorf("%w of receiver %q on version %s", errNoLease, reader, keys[i])
		}
	}
	return nil
}

// admitAny admits who has a lease on anything that is served.
func (g *gate) admitAny(reader string, keys []messages.Key) error {
	g.forget(keys)
	for _, key := range keys {
		if !key.IsZero() && g.holds(reader, key) {
			return nil
		}
	}
	return fmt.Errorf("%w of receiver %q on any version that is served", errNoLease, reader)
}

// forget drops what is known of versions that are gone.
func (g *gate) forget(keys []messages.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.known {
		if !slices.Contains(keys, key) {
			delete(g.known, key)
		}
	}
}

func (g *gate) claimsOf(key messages.Key) *claims {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.known[key]
	if c == nil {
		c = &claims{}
		if g.known == nil {
			g.known = map[messages.Key]*claims{}
		}
		g.known[key] = c
	}
	return c
}

// knows says whether a reader was seen to have a lease not long ago, and whether the last question is newer than a moment.
func (c *claims) knows(reader string, now, moment time.Time) (found, newer bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.names, reader) && now.Sub(c.asked) < gateFresh, c.asked.After(moment)
}

// holds says whether a reader has a lease on a version. Nobody is refused by an answer that was asked for before he came: he
// may have made his lease since. While the server doesn't answer, readers are admitted: without it no slot can be taken back
// either, so that the bytes stay.
func (g *gate) holds(reader string, key messages.Key) bool {
	c, came := g.claimsOf(key), g.now()
	if found, _ := c.knows(reader, came, came); found {
		return true
	}
	c.asking.Lock()
	defer c.asking.Unlock()
	if found, newer := c.knows(reader, g.now(), came); found || newer {
		return found
	}
	g.pause(gateAgain - g.now().Sub(c.asked))
	asked := g.now()
	ctx, cancel := context.WithTimeout(context.Background(), gateWait)
	defer cancel()
	names, err := g.holders(ctx, key)
	if err != nil {
		g.log.Warn("a reader is admitted unseen: nobody says who holds leases", "reader", reader, "key", key.String(), "error", err)
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names, c.asked = names, asked
	return slices.Contains(names, reader)
}

// pauseFor is short: at most gateAgain.
func pauseFor(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// newGate is the gate of a publisher's slots.
func (p *Publisher) newGate() *gate {
	return &gate{
		holders: p.cfg.Control.Holders, now: time.Now, pause: pauseFor, log: p.cfg.Logger,
		keys: func() []messages.Key {
			p.mu.Lock()
			defer p.mu.Unlock()
			keys := make([]messages.Key, len(p.slots))
			for i := range keys {
				keys[i] = p.slots[i].Key
			}
			return keys
		},
		slot: func(region uint32) int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Index(p.numbers, region)
		},
	}
}
