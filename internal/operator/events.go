package operator

import (
	"fmt"
	"slices"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// Event is a difference between two views.
type Event struct {
	At      time.Time `json:"at"`   // of the look that saw it
	Kind    string    `json:"kind"` // "run", "order", "version", "receiver", "publisher", "servers", "quarantine"
	Subject string    `json:"subject"`
	Text    string    `json:"text"`
}

// changes collects the events between two views.
type changes struct {
	at     time.Time
	events []Event
}

func (c *changes) add(kind, subject, format string, args ...any) {
	c.events = append(c.events, Event{At: c.at, Kind: kind, Subject: printable(subject), Text: printable(fmt.Sprintf(format, args...))})
}

// Changes lists what happened from one view to a later one, in the order of cause and effect as far as that is known. The
// zero view is the state before anything.
func Changes(before, after *View) []Event {
	c := &changes{at: after.Now}
	if r := after.Run; r.Run != before.Run.Run {
		c.add("run", fmt.Sprint(r.Run), "taken by job %q with %d ranks; it fences every older run", r.Job, r.World)
	}
	if o := after.Order; o != nil && (before.Order == nil || before.Order.N != o.N) {
		c.add("order", fmt.Sprint(o.N), "serve %s until a newer version is committed (%s: %s)", o.To, o.By, o.Reason)
	}
	c.publishers(before, after)
	c.versions(before, after)
	c.receivers(before, after)
	for _, q := range after.Quarantined {
		if !slices.Contains(before.Quarantined, q) {
			c.add("quarantine", q.Subject, "unreadable, sequence %d, %d bytes: %s", q.Seq, q.Nbytes, q.Reason)
		}
	}
	return c.events
}

func (c *changes) versions(before, after *View) {
	for i := range after.Versions {
		v := &after.Versions[i]
		b := slices.IndexFunc(before.Versions, func(o messages.Committed) bool { return o.Key == v.Key })
		switch {
		case v.Manifest != nil && (b < 0 || before.Versions[b].Manifest == nil):
			c.add("version", v.Key.String(), "committed: %d ranks, %s", v.Manifest.World, Size(v.Manifest.Nbytes()))
		case v.Ended != nil && (b < 0 || before.Versions[b].Ended == nil):
			c.add("version", v.Key.String(), "%s: %s", v.Ended.State, v.Ended.Reason)
		}
	}
}

func (c *changes) receivers(before, after *View) {
	was := byName(before.receivers())
	for _, s := range after.receivers() {
		old, known := was[s.Name]
		delete(was, s.Name)
		if !known {
			c.add("receiver", s.Name, "reports from %s, ranks %s", s.Host, ranks(s.Ranks))
		}
		c.receiver(&old, &s)
	}
	c.gone("receiver", before.receivers(), was)
}

func (c *changes) receiver(old, s *messages.Status) {
	for _, k := range s.Skipped {
		if !slices.Contains(old.Skipped, k) {
			c.add("receiver", s.Name, "skipped %s: superseded before it was staged", k)
		}
	}
	if f := s.Failure; f != nil && (old.Failure == nil || !f.At.Equal(old.Failure.At)) {
		c.add("receiver", s.Name, "failed at %s: %s: %s", orNone(keyText(f.Key)), f.Class, f.Text)
	}
	if !s.Staging.IsZero() && (s.Staging != old.Staging || s.StageState != old.StageState) {
		c.add("receiver", s.Name, "stages %s: %s", s.Staging, orNone(s.StageState))
	}
	if !s.Serving.IsZero() && s.Serving != old.Serving {
		c.add("receiver", s.Name, "serves %s", s.Serving)
	}
}

func (c *changes) publishers(before, after *View) {
	was := byName(before.publishers())
	for _, s := range after.publishers() {
		old, known := was[s.Name]
		delete(was, s.Name)
		if !known || old.Run != s.Run {
			c.add("publisher", s.Name, "reports from %s, rank %s of run %d", s.Host, ranks(s.Ranks), s.Run)
		}
		for i, slot := range s.Slots {
			if i >= len(old.Slots) && slot.Key.IsZero() || i < len(old.Slots) && slotText(old.Slots[i]) == slotText(slot) {
				continue
			}
			c.add("publisher", s.Name, "slot %d: %s", i, slotText(slot))
		}
	}
	c.gone("publisher", before.publishers(), was)
}

// gone tells of those that are left over in was, in order.
func (c *changes) gone(kind string, order []messages.Status, was map[string]messages.Status) {
	for _, s := range order {
		if _, left := was[s.Name]; left {
			c.add(kind, s.Name, "has stopped reporting")
		}
	}
}

func byName(all []messages.Status) map[string]messages.Status {
	m := make(map[string]messages.Status, len(all))
	for _, s := range all {
		m[s.Name] = s
	}
	return m
}

// line draws the event for people.
func (e *Event) line() string {
	return fmt.Sprintf("%s  %-10s  %-12s  %s", e.At.Format("15:04:05.000"), e.Kind, e.Subject, e.Text)
}
