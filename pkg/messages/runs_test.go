package messages_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// TestTakingARunCostsTheSameHoweverManyThereWere: after more runs than the server lists at
// once a job asks for little more than the first one did; and it still knows the oldest
// job, which was fenced long ago and must not come back.
func TestTakingARunCostsTheSameHoweverManyThereWere(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	ctx := natstest.Context(t, 90*time.Second)
	nc := natstest.Connect(t, s)
	counted, err := messages.Open(ctx, nc, memory())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = counted.Close() }) // always nil
	cost := func(job string) (requests uint64, run messages.RunRecord, err error) {
		before := nc.Stats().OutMsgs
		run, err = counted.TakeRun(ctx, job, 1)
		return nc.Stats().OutMsgs - before, run, err
	}
	first, _, err := cost("job-1")
	if err != nil {
		t.Fatal(err)
	}
	const runs = 1100
	for n := 2; n <= runs; n++ {
		rec, err := messages.EncodeRun(&messages.RunRecord{Run: uint64(n), Job: fmt.Sprint("job-", n), World: 1, Taken: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Request(fmt.Sprintf("refit.%s.r.%d", messages.Token(model), n), rec, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	last, run, err := cost("job-new")
	if err != nil || run.Run != runs+1 {
		t.Fatalf("run %d, %v", run.Run, err)
	}
	if last > first+6 {
		t.Errorf("the first run cost %d requests, run %d costs %d", first, run.Run, last)
	}
	t.Logf("requests: %d for the first run, %d for run %d", first, last, run.Run)
	if again, run, err := cost("job-new"); err != nil || run.Run != runs+1 || again > last {
		t.Errorf("the same job again: run %d for %d requests, %v", run.Run, again, err)
	}
	if _, err := c.TakeRun(ctx, "job-1", 1); !errors.Is(err, messages.ErrFenced) {
		t.Errorf("the first job comes back: %v", err)
	}
}
