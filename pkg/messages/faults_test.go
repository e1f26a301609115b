package messages_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// What users of such systems reported, by kind. Each test is named after what went wrong.

// A wait had no deadline, and the error stayed in a server's log.
func TestEveryWaitEndsAndNamesWhoWasWaitedFor(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	key := messages.Key{Run: takeRun(t, c, "job", 3).Run, Version: 1}
	short := func() context.Context { return natstest.Context(t, 200*time.Millisecond) }
	if _, err := c.AwaitRun(short(), "nobody"); err == nil || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("run: %v", err)
	}
	if err := c.Publish(natstest.Context(t, 5*time.Second), publication(key, 1, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(natstest.Context(t, 2*time.Second), key, 3); err == nil || !strings.Contains(err.Error(), "ranks 0,2") {
		t.Errorf("commit: %v", err)
	}
	r, err := c.Why(natstest.Context(t, 5*time.Second), key)
	if err != nil || !slices.Equal(r.Missing, []int{0, 2}) || !strings.Contains(r.String(), "missing of 2 of 3 ranks: 0,2") {
		t.Errorf("why: %v, %v", r, err)
	}
}

// A reader waited for version 587, the trainer for the acknowledgement of 586.
func TestLateReceiverFindsTheNewestAndNamesWhatItSkips(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job", 1).Run
	for v := uint64(585); v <= 586; v++ {
		publishAll(t, c, messages.Key{Run: run, Version: v}, 1)
	}
	watch, err := c.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if a := <-watch; a.Key.Version != 586 {
		t.Fatalf("a late receiver is told of %s", a.Key)
	}
	for v := uint64(587); v <= 590; v++ {
		publishAll(t, c, messages.Key{Run: run, Version: v}, 1)
	}
	skipped := []uint64{}
	for a := range watch {
		for _, k := range a.Skipped {
			skipped = append(skipped, k.Version)
		}
		if a.Key.Version == 590 {
			break
		}
		skipped = append(skipped, a.Key.Version) // announced, and not skipped
	}
	if !slices.Equal(skipped, []uint64{587, 588, 589}) {
		t.Errorf("versions between 586 and 590 that were announced or named: %v", skipped)
	}
}

// Rows of a process that had restarted were still listed.
func TestRestartedRankCannotReplaceItsTable(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	key := messages.Key{Run: takeRun(t, c, "job", 2).Run, Version: 1}
	first := publication(key, 0, 2)
	if err := c.Publish(ctx, first); err != nil {
		t.Fatal(err)
	}
	reborn := publication(key, 0, 2)
	reborn.Endpoint.Incarnation = "life-2"
	if err := c.Publish(ctx, reborn); !errors.Is(err, messages.ErrConflict) {
		t.Fatalf("two lives in one version: %v", err)
	}
	if err := c.Abandon(ctx, key, "rank 0 was restarted"); err != nil {
		t.Fatal(err)
	}
	// The other rank learns it instead of waiting.
	if _, err := c.Commit(ctx, key, 2); !errors.Is(err, messages.ErrAbandoned) {
		t.Errorf("commit: %v", err)
	}
	next := messages.Key{Run: key.Run, Version: 2}
	reborn.Key = next
	for _, p := range []messages.Publication{reborn, publication(next, 1, 2)} {
		if err := c.Publish(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Commit(ctx, next, 2); err != nil {
		t.Fatal(err)
	}
	v, err := c.Assemble(ctx, next)
	if err != nil || v.Ranks[0].Endpoint.Incarnation != "life-2" {
		t.Errorf("%v, %v", v, err)
	}
}

// A table that contradicts its manifest, or its own layout, was believed.
func TestContradictingTableIsRefusedByRank(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	nc := natstest.Connect(t, s)
	ctx := natstest.Context(t, 20*time.Second)
	key := messages.Key{Run: takeRun(t, c, "job", 2).Run, Version: 1}
	publishAll(t, c, key, 2)
	table := fmt.Sprintf("refit.%s.v.%s.t.1", messages.Token(model), key)
	purge(t, nc, table)
	other := publication(key, 1, 2)
	other.Endpoint.Incarnation = "somebody else"
	if err := c.Publish(ctx, other); err != nil {
		t.Fatal(err)
	}
	_, err := c.Assemble(ctx, key)
	var which *messages.RankError
	if !errors.Is(err, messages.ErrContradiction) || !errors.As(err, &which) || !slices.Equal(which.Ranks, []int{1}) {
		t.Errorf("assembled: %v", err)
	}
	if r, err := c.Why(ctx, key); err != nil || len(r.Conflicts) != 1 || !strings.Contains(r.Conflicts[0], "rank 1") {
		t.Errorf("why: %+v, %v", r, err)
	}
	// A bad message is counted once, and hurts nobody else.
	purge(t, nc, table)
	if _, err := nc.Request(table, []byte("\x81\xa6schema\x01"), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Assemble(ctx, key); err == nil {
			t.Error("assembled with a table that can't be read")
		}
	}
	if bad, n := c.Quarantine(); n != 1 || bad[0].Subject != table {
		t.Errorf("quarantined %d: %+v", n, bad)
	}
	next := messages.Key{Run: key.Run, Version: 2}
	publishAll(t, c, next, 2)
	if _, err := c.Assemble(ctx, next); err != nil {
		t.Error(err)
	}
}

func purge(tb testing.TB, nc *nats.Conn, subject string) {
	tb.Helper()
	body := fmt.Appendf(nil, `{"filter":%q}`, subject)
	if _, err := nc.Request("$JS.API.STREAM.PURGE.REFIT_"+messages.Token(model), body, 5*time.Second); err != nil {
		tb.Fatal(err)
	}
}

// Ranks disagreed about the world size.
func TestWorldsThatDisagreeAreNotCommitted(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	key := messages.Key{Run: takeRun(t, c, "job", 2).Run, Version: 1}
	for _, p := range []messages.Publication{publication(key, 0, 2), publication(key, 1, 3)} {
		if err := c.Publish(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Commit(ctx, key, 2)
	var which *messages.RankError
	if !errors.Is(err, messages.ErrContradiction) || !errors.As(err, &which) || !slices.Equal(which.Ranks, []int{1}) {
		t.Errorf("committed: %v", err)
	}
}

// Weight and scale were updated apart; a tied head went stale.
func TestGroupsChangeTogether(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job", 1).Run
	base := publishAll(t, c, messages.Key{Run: run, Version: 1}, 1).Ref()
	partial := func(v uint64, kind messages.GroupKind, members, changed []string) error {
		p := publication(messages.Key{Run: run, Version: v}, 0, 1)
		p.Layout.Groups = []messages.Group{{Kind: kind, Members: members}}
		p.Base, p.Changed = &base, changed
		if err := c.Publish(ctx, p); err != nil {
			return err
		}
		_, err := c.Commit(ctx, p.Key, 1)
		return err
	}
	both := []string{"embed.weight", "head.weight"}
	if err := partial(2, messages.GroupAtomic, both, both[:1]); !errors.Is(err, messages.ErrContradiction) {
		t.Errorf("half an atomic group: %v", err)
	}
	if err := partial(3, messages.GroupAlias, []string{"embed.weight", "norm.bias"}, nil); !errors.Is(err, messages.ErrContradiction) {
		t.Errorf("an alias of another shape: %v", err)
	}
	if err := partial(4, messages.GroupAtomic, []string{"embed.weight", "nowhere"}, nil); !errors.Is(err, messages.ErrContradiction) {
		t.Errorf("a member that no rank has: %v", err)
	}
	if err := partial(5, messages.GroupAtomic, both, both); err != nil {
		t.Errorf("a whole group: %v", err)
	}
	v, err := c.Assemble(ctx, messages.Key{Run: run, Version: 5})
	if err != nil || v.Manifest.Base == nil || *v.Manifest.Base != base || !slices.Equal(v.Ranks[0].Changed(), both) {
		t.Errorf("partial version: %+v, %v", v, err)
	}
	if err := partial(6, messages.GroupAtomic, both, []string{"unknown"}); err == nil || !strings.Contains(err.Error(), `"unknown"`) {
		t.Errorf("an unknown source changed: %v", err)
	}
}

// A metadata server's restart lost all registrations: see also TestLostData.
func TestOperatorRollsBackByName(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job", 1).Run
	key := func(v uint64) messages.Key { return messages.Key{Run: run, Version: v} }
	watch, err := c.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for v := uint64(1); v <= 3; v++ {
		publishAll(t, c, key(v), 1)
		if a := <-watch; a.Key != key(v) {
			t.Fatalf("announced %s", a.Key)
		}
	}
	if _, err := c.Rollback(ctx, key(9), "alice", "no such version"); !errors.Is(err, messages.ErrNotCommitted) {
		t.Errorf("rolled back to nothing: %v", err)
	}
	o, err := c.Rollback(ctx, key(1), "alice", "evals fell")
	if err != nil {
		t.Fatal(err)
	}
	if a := <-watch; a.Key != key(1) || a.Rollback == nil || a.Rollback.By != "alice" || a.Rollback.N != o.N {
		t.Fatalf("announced %+v", a)
	}
	if k, ok, err := c.Newest(ctx); !ok || err != nil || k != key(1) {
		t.Errorf("a late receiver finds %s, %v, %v", k, ok, err)
	}
	publishAll(t, c, key(4), 1)
	if a := <-watch; a.Key != key(4) || a.Rollback != nil {
		t.Errorf("after the rollback: %+v", a)
	}
}

// Exact replay: every version, in order, whatever the reader's pace.
func TestEveryVersionIsAnnouncedInOrder(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job", 1).Run
	watch, err := c.WatchWith(ctx, messages.WatchOptions{Every: true, After: messages.Key{Run: run, Version: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for v := uint64(1); v <= 7; v++ {
		publishAll(t, c, messages.Key{Run: run, Version: v}, 1)
	}
	for v := uint64(3); v <= 7; v++ {
		if a := <-watch; a.Key.Version != v || len(a.Skipped) != 0 {
			t.Fatalf("announced %s, want version %d", a.Key, v)
		}
	}
}

// The way forward from a rollback doesn't lead through what the order led back from.
func TestExactReplayGoesOnBehindARollback(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job", 1).Run
	key := func(v uint64) messages.Key { return messages.Key{Run: run, Version: v} }
	watch, err := c.WatchWith(ctx, messages.WatchOptions{Every: true})
	if err != nil {
		t.Fatal(err)
	}
	for v := uint64(1); v <= 3; v++ {
		publishAll(t, c, key(v), 1)
		if a := <-watch; a.Key != key(v) {
			t.Fatalf("announced %s, want version %d", a.Key, v)
		}
	}
	if _, err := c.Rollback(ctx, key(1), "alice", "evals fell"); err != nil {
		t.Fatal(err)
	}
	if a := <-watch; a.Key != key(1) || a.Rollback == nil {
		t.Fatalf("announced %+v", a)
	}
	late, err := c.WatchWith(ctx, messages.WatchOptions{Every: true, After: key(2)}) // was away when the order came
	if err != nil {
		t.Fatal(err)
	}
	if a := <-late; a.Key != key(1) || a.Rollback == nil {
		t.Fatalf("announced %+v", a)
	}
	publishAll(t, c, key(4), 1)
	publishAll(t, c, key(5), 1)
	for name, w := range map[string]<-chan messages.Announcement{"there all along": watch, "late": late} {
		if a := <-w; a.Key != key(4) || !slices.Equal(a.Skipped, []messages.Key{key(2), key(3)}) {
			t.Errorf("%s: announced %s, skipped %v; want version 4 behind 2 and 3", name, a.Key, a.Skipped)
		}
		if a := <-w; a.Key != key(5) || len(a.Skipped) != 0 {
			t.Errorf("%s: announced %s, skipped %v; want version 5", name, a.Key, a.Skipped)
		}
	}
}

// What a receiver serves is announced to it only where it asks for that, and once.
func TestWhatServesIsAnnouncedAgainOnlyOnDemand(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job", 1).Run
	key := func(v uint64) messages.Key { return messages.Key{Run: run, Version: v} }
	publishAll(t, c, key(1), 1)
	publishAll(t, c, key(2), 1)
	watches := map[*messages.WatchOptions]<-chan messages.Announcement{}
	for _, every := range []bool{false, true} {
		for _, again := range []bool{false, true} {
			opts := &messages.WatchOptions{After: key(2), Again: again, Every: every}
			watch, err := c.WatchWith(ctx, *opts)
			if err != nil {
				t.Fatal(err)
			}
			if watches[opts] = watch; !again {
				continue
			}
			if a := <-watch; a.Key != key(2) || a.Rollback != nil {
				t.Errorf("%+v: announced %+v", opts, a)
			}
		}
	}
	publishAll(t, c, key(3), 1)
	for opts, watch := range watches {
		if a := <-watch; a.Key != key(3) {
			t.Errorf("%+v: announced %s after version 3 came", opts, a.Key)
		}
	}
}

// A job that was fenced comes back: it must not fence its successor.
func TestFencedJobDoesNotComeBack(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	old := takeRun(t, c, "old", 1)
	key := messages.Key{Run: old.Run, Version: 1}
	publishAll(t, c, key, 1)
	current := takeRun(t, c, "new", 1)
	if _, err := c.TakeRun(ctx, "old", 1); !errors.Is(err, messages.ErrFenced) {
		t.Errorf("the old job took a run again: %v", err)
	}
	if err := c.CollectRun(ctx, current.Run); err == nil {
		t.Error("collected the newest run")
	}
	if err := c.CollectRun(ctx, old.Run); err != nil {
		t.Fatal(err)
	}
	list, err := c.Versions(ctx)
	if err != nil || len(list) != 1 || list[0].Ended == nil || list[0].Ended.State != messages.EndRetired {
		t.Errorf("versions: %+v, %v", list, err)
	}
}

// Trace context travels in lower-case headers, from publish and commit to the receiver.
func TestTraceContextTravels(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job", 1).Run
	watch, err := c.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const parent = "00-0102030405060708090a0b0c0d0e0f10-1112131415161718-01"
	traced := messages.Announcement{Headers: map[string]string{"traceparent": parent}}.Remote(ctx)
	key := messages.Key{Run: run, Version: 1}
	if err := c.Publish(traced, publication(key, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(traced, key, 1); err != nil {
		t.Fatal(err)
	}
	if a := <-watch; a.Headers["traceparent"] != parent {
		t.Errorf("announcement: %v", a.Headers)
	}
	v, err := c.Assemble(ctx, key)
	if err != nil || v.Headers["traceparent"] != parent {
		t.Errorf("version: %v, %v", v, err)
	}
}

// A job comes back with another world size: receivers go on without being restarted,
// and a layout that they know is the very same one, also from a restarted rank.
func TestNewWorldNeedsNoNewReceiver(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	watch, err := c.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var known *messages.Layout
	for i, step := range []struct {
		job   string
		world int
		same  bool
	}{{"two", 2, false}, {"two", 2, true}, {"three", 3, false}, {"two again", 2, true}} {
		run := takeRun(t, c, step.job, step.world)
		key := messages.Key{Run: run.Run, Version: uint64(i)}
		publishAll(t, c, key, step.world)
		if a := <-watch; a.Key != key || a.Manifest.World != step.world {
			t.Fatalf("step %d: announced %+v", i, a)
		}
		v, err := c.Assemble(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if known != nil && (v.Ranks[1].Layout == known) != step.same {
			t.Errorf("step %d: the known layout of rank 1 was decoded again, or another one was taken for it", i)
		}
		if step.world == 2 {
			known = v.Ranks[1].Layout
		}
	}
	if _, err := c.TakeRun(ctx, "two again", 5); !errors.Is(err, messages.ErrConflict) {
		t.Errorf("the same job with another world: %v", err)
	}
}

// A connection that is closed for good ends what waits on it.
func TestClosedConnectionEndsEverything(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	nc := natstest.Connect(t, s)
	ctx := natstest.Context(t, 20*time.Second)
	if err := messages.Init(ctx, nc, memory()); err != nil {
		t.Fatal(err)
	}
	c, err := messages.Open(ctx, nc, memory())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // always nil
	key := messages.Key{Run: takeRun(t, c, "job", 1).Run, Version: 1}
	publishAll(t, c, key, 1)
	lease, err := c.AcquireLease(ctx, key, "r")
	if err != nil {
		t.Fatal(err)
	}
	watch, err := c.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	<-watch
	nc.Close()
	if a, ok := <-watch; ok {
		t.Errorf("announced %s over a closed connection", a.Key)
	}
	<-lease.Lost()
	if err := c.Publish(ctx, publication(messages.Key{Run: key.Run, Version: 2}, 0, 1)); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("published over a closed connection: %v", err)
	}
}
