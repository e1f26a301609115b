package messages_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

func engineRecord() *messages.EngineRecord {
	return &messages.EngineRecord{
		Engine: "big", Size: 2, Attempt: 7, Key: messages.Key{Run: 3, Version: 41}, Back: true, Phase: messages.EngineInstalling,
		Members: []messages.EngineMember{
			{Name: "east", Host: "h1", Life: "0af1", Ranks: []int{0, 1}, Files: []string{"/a/rank-0", "/a/rank-1"}, Installed: true},
			{Name: "west", Host: "h2", Ranks: []int{2}, Files: []string{"/b/rank-2"}},
		},
		By: "east", Reason: "it said no", Final: true, Served: messages.Key{Run: 3, Version: 40}, ServedAttempt: 6, Roster: []string{"east", "west"},
	}
}

func TestEngineRecordsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	b, err := messages.EncodeEngine(engineRecord())
	if err != nil {
		t.Fatal(err)
	}
	got, err := messages.DecodeEngine(b)
	if err != nil || !reflect.DeepEqual(got, engineRecord()) {
		t.Errorf("%+v, %v; want %+v", got, err, engineRecord())
	}
	for n := range len(b) {
		if _, err := messages.DecodeEngine(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are taken", n, len(b))
		}
	}
}

func TestEngineRecordsBeyondTheLimitsAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*messages.EngineRecord){
		"no name":         func(r *messages.EngineRecord) { r.Engine = "" },
		"a bad name":      func(r *messages.EngineRecord) { r.Engine = "a.b" },
		"no phase":        func(r *messages.EngineRecord) { r.Phase = "" },
		"no size":         func(r *messages.EngineRecord) { r.Size = 0 },
		"too large":       func(r *messages.EngineRecord) { r.Size = messages.MaxMembers + 1 },
		"a bad member":    func(r *messages.EngineRecord) { r.Members[1].Name = "a b" },
		"a bad life":      func(r *messages.EngineRecord) { r.Members[0].Life = "a b" },
		"a file too many": func(r *messages.EngineRecord) { r.Members[1].Ranks = nil },
		"too many ranks": func(r *messages.EngineRecord) {
			r.Members[0].Ranks, r.Members[0].Files = make([]int, messages.MaxMembers+1), make([]string, messages.MaxMembers+1)
		},
	} {
		r := engineRecord()
		change(r)
		if _, err := messages.EncodeEngine(r); !errors.Is(err, messages.ErrMalformed) && !errors.Is(err, messages.ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEngineRecordsAreChangedOneAfterTheOther has writers add one each, again and again: none may be lost.
func TestEngineRecordsAreChangedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	ctx, c := natstest.Context(t, 20*time.Second), natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	const writers, times = 4, 8
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < times; {
				r, seq, err := c.Engine(ctx, "big")
				if err != nil {
					t.Error(err)
					return
				}
				r.Size, r.Phase, r.Attempt = 1, messages.EngineGathering, r.Attempt+1
				switch err = c.PutEngine(ctx, r, seq); {
				case err == nil:
					done++
				case !errors.Is(err, messages.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	r, _, err := c.Engine(ctx, "big")
	if err != nil || r.Attempt != writers*times {
		t.Errorf("%d of %d changes are there: %v", r.Attempt, writers*times, err)
	}
	if all, err := c.Statuses(ctx); err != nil || len(all) != 0 {
		t.Errorf("the record is taken for a status: %+v, %v", all, err)
	}
}

func TestWhoWatchesAnEngineIsWoken(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(natstest.Context(t, 20*time.Second))
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	wake, err := c.EngineChanges(ctx, "big")
	if err != nil {
		t.Fatal(err)
	}
	r := engineRecord()
	if err := c.PutEngine(ctx, r, 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-wake:
	case <-ctx.Done():
		t.Fatal("not woken")
	}
	cancel() // what watches ends with it: goleak looks
}

func TestAnEngineThatCannotBeAskedIsUnavailable(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, server, memory())
	server.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := c.Engine(ctx, "big"); !errors.Is(err, messages.ErrUnavailable) || !strings.Contains(err.Error(), `"big"`) {
		t.Errorf("read: %v", err)
	}
	if err := c.PutEngine(ctx, engineRecord(), 0); !errors.Is(err, messages.ErrUnavailable) {
		t.Errorf("write: %v", err)
	}
}

// TestOnlyTheReceiversOfAnEngineMayDecide runs the record with the permissions that a server gets.
func TestOnlyTheReceiversOfAnEngineMayDecide(t *testing.T) {
	t.Parallel()
	s := messages.ServerConfig{Token: "m", Receivers: []messages.NamedKey{{Name: "east", Key: "UA", Engine: "big"}, {Name: "lone", Key: "UB"}}}
	text := s.String()
	subject := fmt.Sprintf("%q", "$KV.refit_status_m.engine.big")
	east, lone, _ := strings.Cut(text, "receiver lone")
	if strings.Count(east, subject) != 2 || strings.Contains(lone, subject) {
		t.Errorf("east may not publish and subscribe, or lone may:\n%s", text)
	}
}
