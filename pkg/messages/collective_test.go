package messages_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// Collectives of a trainer interleaved with the transfer of its weights, and both hung. Here
// no rank waits for another to publish, in whatever order and however far apart they do it:
// what waits for all is the commit alone, whose deadline names who is missing.
func TestNoRankWaitsForAnotherToPublish(t *testing.T) {
	t.Parallel()
	const world, versions, dead = 4, 3, 2
	s := natstest.Start(t, natsd.Options{})
	ctx := natstest.Context(t, time.Minute)
	var ranks []*messages.Control
	for range world {
		ranks = append(ranks, natstest.Open(t, s, memory()))
	}
	run := takeRun(t, ranks[0], "job", world).Run
	key := func(v int) messages.Key { return messages.Key{Run: run, Version: uint64(v)} }
	publish := func(rank int, v int) {
		t.Helper()
		if err := ranks[rank].Publish(ctx, publication(key(v), rank, world)); err != nil {
			t.Errorf("rank %d publishes %s: %v", rank, key(v), err)
		}
	}
	// One rank after the other, each with all its versions and alone: a step in which ranks
	// met would never end. The odd ones go backwards.
	for rank := range world {
		for v := 1; v <= versions && rank != dead; v++ {
			publish(rank, []int{v, versions + 1 - v}[rank%2])
		}
	}
	// All that wait for the dead one hear of it in time, and of nobody else.
	var wg sync.WaitGroup
	for rank, c := range ranks {
		if rank == dead {
			continue
		}
		wg.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
			defer cancel()
			_, err := c.Commit(bounded, key(1), world)
			var missing *messages.RankError
			if !errors.As(err, &missing) || !slices.Equal(missing.Ranks, []int{dead}) || !errors.Is(err, messages.ErrIncomplete) {
				t.Errorf("rank %d waits for rank %d and gets %v", rank, dead, err)
			}
		})
	}
	wg.Wait()
	// It was only slow: its versions are committed as they come, the last one first.
	for v := versions; v >= 1; v-- {
		publish(dead, v)
		if _, err := ranks[v%world].Commit(ctx, key(v), world); err != nil {
			t.Errorf("commit %s: %v", key(v), err)
		}
	}
	if newest, ok, err := ranks[0].Newest(ctx); err != nil || !ok || newest != key(versions) {
		t.Errorf("the newest is %s, %v", newest, err)
	}
}
