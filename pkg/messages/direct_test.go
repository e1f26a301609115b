package messages

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/natsd"
)

// replicas makes a control whose direct gets are answered by the test: the n-th request,
// from 1, by answer.
func replicas(t *testing.T, cfg Config, answer func(nc *nats.Conn, n int64, inbox string)) (*Control, *atomic.Int64) {
	t.Helper()
	s, err := natsd.Start(natsd.Options{NoJetStream: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	var asked atomic.Int64
	replica, client := connect(t, s), connect(t, s)
	if _, err := replica.Subscribe("$JS.API.DIRECT.GET.S", func(m *nats.Msg) {
		answer(replica, asked.Add(1), m.Reply)
	}); err != nil {
		t.Fatal(err)
	}
	if err := replica.Flush(); err != nil {
		t.Fatal(err)
	}
	cfg.Model = "m"
	if cfg, err = cfg.withDefaults(); err != nil {
		t.Fatal(err)
	}
	c := &Control{nc: client, cfg: cfg, begun: time.Now()}
	t.Cleanup(c.batches.close)
	return c, &asked
}

func connect(t *testing.T, s *natsd.Server) *nats.Conn {
	t.Helper()
	nc, err := Dial(s.URL(), DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// say sends one message of an answer; its last when code is given.
func say(t *testing.T, nc *nats.Conn, inbox string, seq int, code string) {
	t.Helper()
	m := direct(inbox, seq, []byte("body"))
	if code != "" {
		m = status(inbox, code)
	}
	if err := nc.PublishMsg(m); err != nil {
		t.Error(err)
	}
}

// TestLostReadsAreAskedForAgain: a frozen server is handed reads and never answers them.
// Once that was seen, the next reads are not waited for as long.
func TestLostReadsAreAskedForAgain(t *testing.T) {
	t.Parallel()
	c, asked := replicas(t, Config{}, func(nc *nats.Conn, n int64, inbox string) {
		if n%2 == 1 {
			return // the frozen one
		}
		say(t, nc, inbox, int(n), "")
		say(t, nc, inbox, 0, "204")
	})
	calm := c.patience()
	for range 3 {
		msgs, err := c.batch(t.Context(), "S", getQuery{}, nil)
		if err != nil || len(msgs) != 1 {
			t.Fatalf("%d messages, %v", len(msgs), err)
		}
	}
	if n := asked.Load(); n < 6 {
		t.Errorf("three reads were asked for %d times, each first request was lost", n)
	}
	if c.patience() >= calm {
		t.Errorf("reads are lost, and the next ones are waited for as long as ever: %v", c.patience())
	}
}

// TestReadsThatNobodyAnswersEnd: in time, and without asking for ever.
func TestReadsThatNobodyAnswersEnd(t *testing.T) {
	t.Parallel()
	c, asked := replicas(t, Config{OpTimeout: 50 * time.Millisecond}, func(*nats.Conn, int64, string) {})
	_, err := c.batch(t.Context(), "S", getQuery{}, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody answered: %v", err)
	}
	if n := asked.Load(); n < 2 || n > maxAsks {
		t.Errorf("asked %d times, want 2 to %d", n, maxAsks)
	}
	if open := len(c.batches.open); open != 0 {
		t.Errorf("%d answers are still waited for", open)
	}
}

// TestAnswersOnTheirWayAreNotAskedForAgain: a long answer whose messages keep coming is
// waited for, however long the whole takes.
func TestAnswersOnTheirWayAreNotAskedForAgain(t *testing.T) {
	t.Parallel()
	const pieces = 40
	c, asked := replicas(t, Config{OpTimeout: 4 * time.Second}, func(nc *nats.Conn, _ int64, inbox string) {
		tick := time.NewTicker(25 * time.Millisecond) // twice as long in all as a silent replica is given
		defer tick.Stop()
		for i := range pieces {
			say(t, nc, inbox, i+1, "")
			<-tick.C
		}
		say(t, nc, inbox, 0, "204")
	})
	msgs, err := c.batch(t.Context(), "S", getQuery{}, nil)
	if err != nil || len(msgs) != pieces {
		t.Errorf("%d messages, %v", len(msgs), err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for an answer that was on its way", n)
	}
}

// TestErrorsOfOneReplicaAreNotTheAnswer: as long as another one was asked, it may know better;
// with nobody else asked the error is told at once.
func TestErrorsOfOneReplicaAreNotTheAnswer(t *testing.T) {
	t.Parallel()
	var first atomic.Value
	c, _ := replicas(t, Config{}, func(nc *nats.Conn, n int64, inbox string) {
		if n == 1 {
			first.Store(inbox)
			return
		}
		before, ok := first.Load().(string)
		if !ok {
			t.Error("the second request came first")
			return
		}
		say(t, nc, before, 0, "503")
		say(t, nc, inbox, 1, "")
		say(t, nc, inbox, 0, "204")
	})
	if msgs, err := c.batch(t.Context(), "S", getQuery{}, nil); err != nil || len(msgs) != 1 {
		t.Errorf("one replica has no leader, the other has a message: %d messages, %v", len(msgs), err)
	}
	c, asked := replicas(t, Config{}, func(nc *nats.Conn, _ int64, inbox string) { say(t, nc, inbox, 0, "503") })
	if _, err := c.batch(t.Context(), "S", getQuery{}, nil); !errors.Is(err, nats.ErrNoResponders) || asked.Load() != 1 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}
