package messages

import (
	"context"
	"errors"
	"fmt"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Retire withdraws a version and waits until no receiver reads it; then it removes
// this rank's table. After nil the rank's bytes are free. It waits until ctx ends; then
// the error is ErrHeld, names who still holds a lease, and Retire should be called
// again: the version stays withdrawn, its bytes must stay in place.
func (c *Control) Retire(ctx context.Context, key Key, rank int) error {
	body, err := c.endBody(key, EndRetired, "withdrawn by rank "+fmt.Sprint(rank))
	if err != nil {
		return fmt.Errorf("retire version %s: %w", key, err)
	}
	return c.retire(ctx, &protocol.Retire{Key: key, Rank: rank, End: body, EndTTL: c.cfg.EndTTL})
}

// WaitDrained withdraws a version and waits like Retire, but leaves the rank's table
// where it is.
func (c *Control) WaitDrained(ctx context.Context, key Key) error {
	body, err := c.endBody(key, EndRetired, "withdrawn")
	if err != nil {
		return fmt.Errorf("drain version %s: %w", key, err)
	}
	return c.retire(ctx, &protocol.Retire{Key: key, End: body, EndTTL: c.cfg.EndTTL, Keep: true})
}

func (c *Control) retire(ctx context.Context, m *protocol.Retire) error {
	err := c.drive(ctx, m)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && len(m.Holders) > 0:
		return &HeldError{Key: m.Key, Receivers: receivers(m.Holders), Err: err}
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("retire version %s: its leases are not known: %w", m.Key, err)
	}
	return fmt.Errorf("retire version %s: %w", m.Key, err)
}

// HeldError is an ErrHeld that names the receivers.
type HeldError struct {
	Key       Key
	Receivers []string
	Err       error // why the wait ended
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("retire version %s: still read by %v: %v", e.Key, e.Receivers, e.Err)
}

// Is says that a HeldError is an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Unwrap returns why the wait ended.
func (e *HeldError) Unwrap() error { return e.Err }

// Holders names the receivers that hold a lease on a version, as the leader knows them.
func (c *Control) Holders(ctx context.Context, key Key) ([]string, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	in := protocol.Intent{Verb: protocol.ListLeases, Place: protocol.Place{Kind: protocol.KindCommit, Key: key}}
	for {
		res := c.perform(ctx, in)
		switch res.Outcome {
		case protocol.OK:
			return receivers(res.Items), nil
		case protocol.Refused:
			return nil, fmt.Errorf("list leases of version %s: %w", key, res.Err)
		}
		pause(ctx, retryDelay)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("list leases of version %s: %w", key, gaveUp(ctx, res.Err))
		}
	}
}

func receivers(items []protocol.Item) []string {
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = it.Place.Name
	}
	return names
}
