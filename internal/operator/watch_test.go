package operator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// TestChangesAreDrawn goes from nothing to the sample, and on to a later state.
func TestChangesAreDrawn(t *testing.T) {
	t.Parallel()
	first, later := sampleView(), sampleView()
	later.Now = now.Add(time.Second)
	later.Versions = append(later.Versions, messages.Committed{Key: key(2, 5), At: now, Manifest: manifest(key(2, 5), 4, 2e8)})
	later.Versions[3].Manifest, later.Versions[3].Ended = nil, &messages.Ended{State: messages.EndRetired, Reason: "superseded"}
	later.Order = &messages.Order{N: 2, To: key(2, 4), By: "ada@ops", Reason: "again"}
	later.Statuses = later.Statuses[:len(later.Statuses)-1] // receiver-1 is gone
	later.Statuses[0].Slots[1].State = "committed"
	r := &later.Statuses[3]
	r.Serving, r.Skipped = key(2, 5), append(r.Skipped, key(2, 3))
	later.Quarantined = append(later.Quarantined, messages.Quarantined{Subject: "s", Seq: 90, Nbytes: 1, Reason: "short", At: now})

	var b bytes.Buffer
	for _, events := range [][]Event{Changes(&View{}, first), Changes(first, later), Changes(later, later)} {
		for i := range events {
			b.WriteString(events[i].line() + "\n")
		}
		b.WriteString("---\n")
	}
	golden(t, "events.txt", b.Bytes())
}

// watching runs Watch and hands out its events one by one.
func watching(t *testing.T, c *messages.Control) (next func(kind, text string) Event, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(natstest.Context(t, 30*time.Second))
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Watch(ctx, c, w, WatchOptions{Interval: 20 * time.Millisecond, JSON: true})
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	next = func(kind, text string) Event {
		t.Helper()
		for lines.Scan() {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			if e.Kind == kind && strings.Contains(e.Text, text) {
				return e
			}
		}
		t.Fatalf("the watch ended before %s %q", kind, text)
		return Event{}
	}
	return next, func() error {
		cancel()
		go func() { _, _ = io.Copy(io.Discard, r) }() // it may be in the middle of a line
		return <-ended
	}
}

func TestWatchFollows(t *testing.T) {
	t.Parallel()
	o := natsd.Options{Dir: t.TempDir()}
	s := natstest.Start(t, o)
	cfg := messages.Config{Model: "org/tiny", Poll: 200 * time.Millisecond, Deadline: 500 * time.Millisecond, OpTimeout: 200 * time.Millisecond}
	c := natstest.Open(t, s, cfg)
	next, stop := watching(t, c)
	run := takeRun(t, c, "job", 1)
	next("run", `job "job"`)
	commit(t, c, key(run, 1), 1)
	if e := next("version", "committed"); e.Subject != "1.1" {
		t.Errorf("got %+v", e)
	}
	ctx := natstest.Context(t, 20*time.Second)
	if err := c.PutStatus(ctx, "r", messages.Status{Role: messages.RoleReceiver, Host: "h", Ranks: []int{0}, Serving: key(run, 1)}); err != nil {
		t.Fatal(err)
	}
	next("receiver", "serves 1.1")
	s.Shutdown()
	next("servers", "no answer")
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if o.Port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	natstest.Start(t, o)
	next("servers", "again")
	if err := stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestWatchEndsWhenItsReaderIsGone(t *testing.T) {
	t.Parallel()
	c := open(t)
	takeRun(t, c, "job", 1)
	r, w := io.Pipe()
	r.Close()
	if err := Watch(natstest.Context(t, 10*time.Second), c, w, WatchOptions{}); err == nil {
		t.Error("no error")
	}
}
