package refit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// errKept is the cause of a wait for a slot whose version the policy does not let go.
var errKept = errors.New("the policy keeps it")

// keepInterval is how often a publisher looks whether its policy lets a version go. Statuses change as often as versions
// are applied, so a trainer that waits for its slowest receiver loses no more than this.
const keepInterval = 100 * time.Millisecond

// awaitPolicy waits until the policy lets a version go, no longer than for leases. The error names the receivers behind.
func (p *Publisher) awaitPolicy(ctx context.Context, key messages.Key) error {
	if !p.cfg.Keep.Waits() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, p.cfg.DrainTimeout)
	defer cancel()
	look := time.NewTicker(keepInterval)
	defer look.Stop()
	var why error
	for {
		free, behind, err := p.cfg.Control.Retirable(limited, p.cfg.Keep, p.committed())
		switch {
		case err == nil && slices.Contains(free, key):
			return nil
		case err == nil:
			why = fmt.Errorf("%w: %s, and %s", errKept, p.cfg.Keep, waitsFor(behind))
		case limited.Err() == nil || why == nil: // an answer that the deadline cut off says less than the one before
			why = err
		}
		select {
		case <-look.C:
		case <-limited.Done():
			return fmt.Errorf("free the slot of run %d version %d of rank %d: waited %v: %w: %w",
				key.Run, key.Version, p.cfg.Rank, p.cfg.DrainTimeout, why, context.Cause(limited))
		}
	}
}

func waitsFor(behind []string) string {
	if len(behind) == 0 {
		return "no receiver has told what it serves"
	}
	return "behind are " + strings.Join(behind, ", ")
}

// committed lists the versions that lie in slots.
func (p *Publisher) committed() []messages.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []messages.Key
	for i := range p.slots {
		if !p.slots[i].Key.IsZero() {
			keys = append(keys, p.slots[i].Key)
		}
	}
	return keys
}
