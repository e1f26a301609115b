package messages_test

import (
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// told collects what a watcher says of versions that it can't follow.
func told() (chan messages.Stranded, func(messages.Stranded)) {
	c := make(chan messages.Stranded, 16)
	return c, func(s messages.Stranded) { c <- s }
}

// follow watches a model from a version on.
func follow(t *testing.T, c *messages.Control, after messages.Key, stranded func(messages.Stranded)) <-chan messages.Announcement {
	t.Helper()
	watch, err := c.WatchWith(natstest.Context(t, time.Minute), messages.WatchOptions{After: after, Stranded: stranded})
	if err != nil {
		t.Fatal(err)
	}
	return watch
}

// within takes what must come in time.
func within[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// none checks that nothing more has come by now.
func none[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	select {
	case v := <-c:
		t.Errorf("%s: %+v", what, v)
	default:
	}
}

// An emptied server gives out run 1 again, and a receiver that serves what came before
// neither takes its versions for newer ones nor ignores them in silence. An operator's
// order leads it over, and from there on all is as ever.
func TestEmptiedServerIsNamedAndLeftByOrderOnly(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	ctx := natstest.Context(t, time.Minute)
	first := takeRun(t, c, "before", 1)
	key := func(v uint64) messages.Key { return messages.Key{Run: first.Run, Version: v} }
	publishAll(t, c, key(40), 1)
	publishAll(t, c, key(50), 1)
	strandings, tell := told()
	watch := follow(t, c, messages.Key{}, tell)
	if a := within(t, watch, "the newest version"); a.Key != key(50) {
		t.Fatalf("announced %s", a.Key)
	}
	// It has followed an order of the old history, whose sequence is beyond those of the new one.
	if _, err := c.Rollback(ctx, key(40), "op", "bad"); err != nil {
		t.Fatal(err)
	}
	if a := within(t, watch, "the rollback"); a.Key != key(40) {
		t.Fatalf("announced %s", a.Key)
	}
	if err := s.Restart(); err != nil { // streams in memory are gone
		t.Fatal(err)
	}
	other := natstest.Open(t, s, memory())
	if run := takeRun(t, other, "after", 1); run.Run != first.Run {
		t.Fatalf("the emptied server gives out run %d", run.Run)
	}
	publishAll(t, other, key(3), 1)
	got := within(t, strandings, "word of the emptied server")
	if got.Serving != key(40) || got.Newest != key(3) || !got.Foreign {
		t.Errorf("stranded: %+v", got)
	}
	for _, want := range []string{"1.3", "1.40", "lost its data", `"after"`, "refitctl rollback 1.3"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	none(t, watch, "announced although it is older")
	if _, err := other.Rollback(ctx, key(3), "op", "the server was emptied"); err != nil {
		t.Fatal(err)
	}
	if a := within(t, watch, "the order that leads over"); a.Key != key(3) || a.Rollback == nil {
		t.Fatalf("announced %+v", a)
	}
	publishAll(t, other, key(4), 1)
	if a := within(t, watch, "the next version"); a.Key != key(4) || a.Rollback != nil {
		t.Errorf("announced %+v", a)
	}
	none(t, strandings, "stranded although it was led over")
}

// A receiver that was down when the order was given is led to what is newest by then.
func TestReceiverThatComesLateIsLedOverToo(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	run := takeRun(t, c, "after", 1).Run
	key := func(v uint64) messages.Key { return messages.Key{Run: run, Version: v} }
	publishAll(t, c, key(3), 1)
	served := messages.Key{Run: run + 4, Version: 50}
	strandings, tell := told()
	early := follow(t, c, served, tell)
	if got := within(t, strandings, "word of the other history"); !got.Foreign || got.Serving != served || got.Newest != key(3) {
		t.Errorf("stranded: %+v", got)
	}
	if _, err := c.Rollback(natstest.Context(t, 20*time.Second), key(3), "op", "the server was emptied"); err != nil {
		t.Fatal(err)
	}
	if a := within(t, early, "the order"); a.Key != key(3) || a.Rollback == nil {
		t.Errorf("announced %+v", a)
	}
	publishAll(t, c, key(4), 1)
	if a := within(t, early, "the next version"); a.Key != key(4) {
		t.Errorf("announced %+v", a)
	}
	late := follow(t, c, served, tell)
	if a := within(t, late, "what the order leads to"); a.Key != key(4) || a.Rollback == nil {
		t.Errorf("announced %+v", a)
	}
}

// Another version by the same name is not what is served.
func TestSameNameInAnotherHistoryIsNotTheSameVersion(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	key := messages.Key{Run: takeRun(t, c, "before", 1).Run, Version: 7}
	publishAll(t, c, key, 1)
	strandings, tell := told()
	watch := follow(t, c, messages.Key{}, tell)
	within(t, watch, "the version")
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	other := natstest.Open(t, s, memory())
	takeRun(t, other, "after", 1)
	p := publication(key, 0, 1)
	p.Endpoint.Incarnation = "another"
	ctx := natstest.Context(t, 20*time.Second)
	if err := other.Publish(ctx, p); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Commit(ctx, key, 1); err != nil {
		t.Fatal(err)
	}
	if got := within(t, strandings, "word of the other version"); got.Newest != key || got.Serving != key || !got.Foreign {
		t.Errorf("stranded: %+v", got)
	}
	publishAll(t, other, messages.Key{Run: key.Run, Version: 8}, 1)
	if a := within(t, watch, "a newer version"); a.Key.Version != 8 {
		t.Errorf("announced %s", a.Key)
	}
}

// That an older version is the newest is said where it is so, with what is known of it,
// and not where the newer one was withdrawn or a rollback is in force.
func TestOlderVersionsAreNamedOnlyWhereTheNewerIsGone(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	ctx := natstest.Context(t, 30*time.Second)
	run := takeRun(t, c, "job", 1).Run
	key := func(v uint64) messages.Key { return messages.Key{Run: run, Version: v} }
	for v := uint64(1); v <= 3; v++ {
		publishAll(t, c, key(v), 1)
	}
	strandings, tell := told()
	// Of the three that watch, only the one whose version the leader does not know is stranded.
	follow(t, c, key(3), tell)
	if err := c.Retire(ctx, key(3), 0); err != nil {
		t.Fatal(err)
	}
	follow(t, c, key(3), tell)
	follow(t, c, key(9), tell)
	got := within(t, strandings, "word of the version that is gone")
	if got.Serving != key(9) || got.Newest != key(2) || got.Foreign || !strings.Contains(got.String(), "gone back") {
		t.Errorf("stranded: %+v: %s", got, got)
	}
	publishAll(t, c, key(10), 1)
	none(t, strandings, "stranded")
}
