package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// engine publishes the versions of one rank. Its methods are called by one goroutine, but slots by any.
type engine interface {
	// claim waits until memory is free for a version; slot -1 leaves the choice to the engine.
	claim(ctx context.Context, version uint64, slot int) (int, error)
	// publish publishes what lies in the version's memory and waits for the commit.
	publish(ctx context.Context, version uint64, c content) (*messages.Manifest, error)
	// retire withdraws a version and waits until nobody reads it.
	retire(ctx context.Context, version uint64) error
	run() messages.RunRecord
	slots() []messages.Slot
	close() error
}

// content is what a version says of its bytes.
type content struct {
	digests *messages.Tiles // that the trainer made
	base    *messages.Ref   // what the version is a difference from; nil: it is whole
	changed []string        // with base: names of sources
}

// snapshots is an engine whose versions lie in slots, as refit.Publisher has them.
type snapshots struct {
	publisher *refit.Publisher
	end       func() error // of the transports
}

func (s *snapshots) run() messages.RunRecord { return s.publisher.Run() }

func (s *snapshots) slots() []messages.Slot { return s.publisher.Status().Slots }

func (s *snapshots) retire(ctx context.Context, version uint64) error {
	return s.publisher.Retire(ctx, version)
}

func (s *snapshots) close() error { return errors.Join(s.publisher.Close(), s.end()) }

func (s *snapshots) claim(ctx context.Context, version uint64, slot int) (int, error) {
	if slot < 0 {
		slot = s.publisher.Choose(version)
	}
	_, err := s.publisher.Claim(ctx, version, slot)
	return slot, err
}

func (s *snapshots) publish(ctx context.Context, version uint64, c content) (*messages.Manifest, error) {
	return s.publisher.PublishChange(ctx, version, refit.Change{Base: c.base, Sources: c.changed})
}

// control is what the sidecar needs of the control plane besides refit.Publisher.
type control interface {
	Versions(ctx context.Context) ([]messages.Committed, error)
	Retire(ctx context.Context, key messages.Key, rank int) error
	Abandon(ctx context.Context, key messages.Key, reason string) error
	Holders(ctx context.Context, key messages.Key) ([]string, error)
	Statuses(ctx context.Context) ([]messages.Status, error)
}

// withdrawEarlier withdraws what an earlier life of this process served of a run: readers were told to reach that life.
// Some of them may still read by what they have mapped, and the slots are the same files, so their leases are waited for.
func withdrawEarlier(ctx context.Context, c control, run uint64, rank int, log *slog.Logger) error {
	versions, err := c.Versions(ctx)
	if err != nil {
		return fmt.Errorf("look for versions of an earlier life: %w", err)
	}
	for _, v := range versions {
		if v.Key.Run != run || v.Ended != nil && v.Ended.State == messages.EndAbandoned {
			continue
		}
		if v.Manifest != nil {
			log.Warn("version withdrawn: an earlier life of this sidecar served it", "key", v.Key.String())
		}
		if err := c.Retire(ctx, v.Key, rank); err != nil {
			return fmt.Errorf("withdraw version %s of an earlier life: %w", v.Key, err)
		}
	}
	return nil
}

// lostGrace is how long readers are waited for whose version this rank can't serve any more: they can't get on.
const lostGrace = 5 * time.Second

// endConflicting ends a version that an earlier life of this rank has published: its table can't be replaced, and nobody
// should wait for it or stay with it.
func endConflicting(ctx context.Context, c control, key messages.Key, rank int, conflict error) error {
	err := c.Abandon(ctx, key, fmt.Sprintf("rank %d was started again", rank))
	if errors.Is(err, messages.ErrConflict) { // the other ranks have committed it
		ctx, cancel := context.WithTimeout(ctx, lostGrace)
		defer cancel()
		err = c.Retire(ctx, key, rank)
	}
	if err != nil && !errors.Is(err, messages.ErrHeld) {
		return errors.Join(conflict, err)
	}
	e := refuse(VersionEnded, "an earlier life of rank %d has published version %s, which was ended by name", rank, key)
	e.cause = conflict
	return e
}
