package operator

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

func TestExplanationsAreDrawn(t *testing.T) {
	t.Parallel()
	v := sampleView()
	run := v.Run
	var all []byte
	for _, r := range []*messages.Report{
		{Key: key(2, 5), Run: run, World: 4, Published: []int{0}, Missing: []int{1, 2, 3}, Conflicts: []string{"rank 0: table is for a world of 8, not 4"}},
		{Key: key(2, 4), Run: run, World: 4, Published: []int{0, 1, 2, 3}, Manifest: manifest(key(2, 4), 4, 1<<20), Holders: []string{"receiver-1"}},
		{Key: key(2, 3), Run: run, World: 4, Published: []int{0, 1, 2, 3}, Manifest: manifest(key(2, 3), 4, 1<<20)},
		{Key: key(2, 2), Run: run, World: 4, Missing: []int{0, 1, 2, 3}, Ended: &messages.Ended{State: messages.EndRetired, Reason: "superseded"}},
		{Key: key(1, 9), Run: run, Fenced: true, World: 2, Published: []int{0, 1}, Manifest: manifest(key(1, 9), 2, 5e8)},
		{Key: key(2, 99), Run: run, World: 4, Missing: []int{0, 1, 2, 3}},
	} {
		all = append(all, drawn(t, v.explain(r))...)
		all = append(all, '\n')
	}
	golden(t, "why.txt", all)
}

func TestLongListsAreCut(t *testing.T) {
	t.Parallel()
	v := &View{Model: "m", Now: now}
	r := &messages.Report{Key: key(1, 1), World: 1000, Published: []int{0}}
	for rank := 1; rank < 1000; rank++ {
		r.Missing = append(r.Missing, rank)
	}
	var b strings.Builder
	if err := v.explain(r).Write(&b); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n > shownSayings+5 || !strings.Contains(b.String(), "and 975 more") {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}

func TestWhyNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	c := open(t)
	ctx := natstest.Context(t, 20*time.Second)
	look := func() *View {
		v, err := Look(ctx, c, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if _, err := Why(ctx, c, look(), messages.Key{}); err == nil || !strings.Contains(err.Error(), "no version") {
		t.Errorf("of nothing: %v", err)
	}
	run := takeRun(t, c, "job", 3)
	publish(t, c, key(run, 1), 0, 3)
	publish(t, c, key(run, 1), 2, 3)
	err := c.PutStatus(ctx, "publisher-1", messages.Status{
		Role: messages.RolePublisher, Host: "h", Ranks: []int{1}, Job: "job", Run: run, Slots: []messages.Slot{{Key: key(run, 1), State: "filling"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	e, err := Why(ctx, c, look(), messages.Key{}) // known by a publisher's slot alone
	if err != nil {
		t.Fatal(err)
	}
	if e.State != "incomplete" || !slices.Equal(e.Published, []int{0, 2}) || len(e.Missing) != 1 ||
		e.Missing[0].Who != "rank 1" || !strings.Contains(e.Missing[0].Says, "1.1 filling") {
		t.Errorf("got %+v", e)
	}
	publish(t, c, key(run, 1), 1, 3)
	if _, err := c.Commit(ctx, key(run, 1), 3); err != nil {
		t.Fatal(err)
	}
	lease, err := c.AcquireLease(ctx, key(run, 1), "receiver-0")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(ctx)
	if e, err = Why(ctx, c, look(), key(run, 1)); err != nil || e.State != "committed" || !e.Newest || !slices.Equal(e.Holders, []string{"receiver-0"}) {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	c := open(t)
	ctx := natstest.Context(t, 20*time.Second)
	old := takeRun(t, c, "job-a", 1)
	commit(t, c, key(old, 1), 1)
	run := takeRun(t, c, "job-b", 1)
	commit(t, c, key(run, 1), 1)
	commit(t, c, key(run, 2), 1)
	for _, bad := range []struct {
		to     messages.Key
		reason string
		want   error
		code   int
	}{
		{key(run, 1), " ", nil, cli.ExitUsage},
		{key(run, 9), "x", messages.ErrNotCommitted, cli.ExitFailure},
		{key(old, 1), "x", messages.ErrFenced, cli.ExitFailure},
	} {
		_, err := Rollback(ctx, c, bad.to, "ada", bad.reason)
		if cli.Code(Coded(err)) != bad.code || bad.want != nil && !errors.Is(err, bad.want) {
			t.Errorf("to %s: %v", bad.to, err)
		}
	}
	o, err := Rollback(ctx, c, key(run, 1), "ada", "worse")
	if err != nil || o.N != 1 || o.To != "2.1" {
		t.Fatalf("got %+v, %v", o, err)
	}
	if k, err := FindKey(ctx, c, Latest); err != nil || k != key(run, 1) {
		t.Errorf("after the rollback the latest is %s, %v", k, err)
	}
	v, err := Look(ctx, c, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	if e, err := Why(ctx, c, v, key(run, 2)); err != nil || e.Write(&told) != nil || !strings.Contains(told.String(), "serve 2.1 instead, by order 1 (ada: worse)") {
		t.Errorf("of the version gone back from: %q, %v", told.String(), err)
	}
	put := func(serving messages.Key) {
		t.Helper()
		if err := c.PutStatus(ctx, "r", messages.Status{Role: messages.RoleReceiver, Serving: serving}); err != nil {
			t.Fatal(err)
		}
	}
	put(key(run, 2))
	err = AwaitServing(natstest.Context(t, 300*time.Millisecond), c, key(run, 1))
	if err == nil || !strings.Contains(err.Error(), "not yet: r") {
		t.Errorf("a receiver that stays: %v", err)
	}
	put(key(run, 1))
	if err := AwaitServing(ctx, c, key(run, 1)); err != nil {
		t.Error(err)
	}
}

// TestWhyNamesAnEmptiedServer: receivers serve what came from another history than the server's.
func TestWhyNamesAnEmptiedServer(t *testing.T) {
	t.Parallel()
	c := open(t)
	ctx := natstest.Context(t, 20*time.Second)
	run := takeRun(t, c, "job", 1)
	publish(t, c, key(run, 3), 0, 1)
	if _, err := c.Commit(ctx, key(run, 3), 1); err != nil {
		t.Fatal(err)
	}
	old := key(run+4, 50)
	if err := c.PutStatus(ctx, "receiver-0", messages.Status{
		Role: messages.RoleReceiver, Host: "h", Serving: old,
		Failure: &messages.Failure{Class: "backwards", Text: "it says why", Key: key(run, 3), At: time.Now()},
	}); err != nil {
		t.Fatal(err)
	}
	v, err := Look(ctx, c, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[messages.Key][]string{
		{}:          {"Nobody has published anything of version 5.50", "lost its data, or is another one", "refitctl rollback", "receiver-0: serves it"},
		key(run, 3): {"what receivers should serve", "receiver-0: serves 5.50; failed at it: backwards: it says why"},
	} {
		e, err := Why(ctx, c, v, k)
		if err != nil {
			t.Fatal(err)
		}
		text := string(drawn(t, e))
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("why %v lacks %q:\n%s", k, w, text)
			}
		}
	}
}
