package operator

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// ReceiverRow is what one receiver says of itself.
type ReceiverRow struct {
	Name    string      `json:"name"`
	Host    string      `json:"host"`
	Ranks   []int       `json:"ranks"`
	Serving string      `json:"serving,omitempty"`
	Lag     int         `json:"lag"` // standing versions that are newer than what it serves
	Staging string      `json:"staging,omitempty"`
	State   string      `json:"state,omitempty"` // of the staging
	Failure *FailureRow `json:"failure,omitempty"`
	Skipped []string    `json:"skipped,omitempty"` // versions that were superseded before they were staged, newest last
	Arenas  []string    `json:"arenas,omitempty"`  // serving first
	Updated time.Time   `json:"updated"`
}

// FailureRow is the last thing that went wrong in a receiver.
type FailureRow struct {
	Class   string    `json:"class"`
	Text    string    `json:"text"`
	Version string    `json:"version,omitempty"`
	At      time.Time `json:"at"`
}

// ReceiverList is the answer of refitctl receivers.
type ReceiverList struct {
	Model     string        `json:"model"`
	Newest    string        `json:"newest,omitempty"`
	Receivers []ReceiverRow `json:"receivers"`

	now time.Time
}

// ReceiverList lists the receivers of a view by name.
func (v *View) ReceiverList() *ReceiverList {
	l := &ReceiverList{Model: v.Model, Newest: keyText(v.Newest), Receivers: []ReceiverRow{}, now: v.Now}
	for _, s := range v.receivers() {
		r := ReceiverRow{
			Name: s.Name, Host: s.Host, Ranks: s.Ranks, Serving: keyText(s.Serving), Lag: v.lag(s.Serving),
			Staging: keyText(s.Staging), State: s.StageState, Arenas: s.Arenas, Updated: s.Updated,
		}
		for _, k := range s.Skipped {
			r.Skipped = append(r.Skipped, k.String())
		}
		if f := s.Failure; f != nil {
			r.Failure = &FailureRow{Class: f.Class, Text: f.Text, Version: keyText(f.Key), At: f.At}
		}
		l.Receivers = append(l.Receivers, r)
	}
	return l
}

// Write draws the list for people.
func (l *ReceiverList) Write(w io.Writer) error {
	t := table{head: []string{"RECEIVER", "HOST", "RANKS", "SERVES", "BEHIND", "STAGES", "SKIPPED", "LAST FAILURE", "SEEN"}}
	for _, r := range l.Receivers {
		t.add(r.Name, brief(r.Host, 16), ranks(r.Ranks), orNone(r.Serving), fmt.Sprint(r.Lag), r.stagingText(),
			fmt.Sprint(len(r.Skipped)), l.failureText(r.Failure), age(l.now, r.Updated))
	}
	return t.write(w, fmt.Sprintf("no receiver of model %s has reported within the last minute", printable(l.Model)))
}

func (r *ReceiverRow) stagingText() string {
	if r.Staging == "" {
		return orNone(r.State)
	}
	return strings.TrimSuffix(r.Staging+": "+r.State, ": ")
}

func (l *ReceiverList) failureText(f *FailureRow) string {
	if f == nil {
		return none
	}
	return brief(fmt.Sprintf("%s, %s: %s", age(l.now, f.At), f.Class, f.Text), 64)
}

// PublisherRow is what one trainer rank says of itself.
type PublisherRow struct {
	Name    string    `json:"name"`
	Rank    []int     `json:"rank"`
	Host    string    `json:"host"`
	Job     string    `json:"job"`
	Run     uint64    `json:"run"`
	Fenced  bool      `json:"fenced"`         // a newer run exists
	Keep    string    `json:"keep,omitempty"` // which versions it keeps, e.g. "2", "every"
	Slots   []SlotRow `json:"slots"`
	Updated time.Time `json:"updated"`
}

// SlotRow is one buffer of a publisher.
type SlotRow struct {
	Version string   `json:"version,omitempty"`
	State   string   `json:"state"`
	Holders []string `json:"holders,omitempty"` // receivers whose leases keep it
}

// PublisherList is the answer of refitctl publishers.
type PublisherList struct {
	Model      string         `json:"model"`
	Run        uint64         `json:"run"`
	World      int            `json:"world"`
	Publishers []PublisherRow `json:"publishers"`
	Silent     []int          `json:"silent,omitempty"` // ranks of the run that have no status

	now time.Time
}

// PublisherList lists the publishers of a view by name, and the ranks of the newest run that say nothing.
func (v *View) PublisherList() *PublisherList {
	l := &PublisherList{Model: v.Model, Run: v.Run.Run, World: v.Run.World, Publishers: []PublisherRow{}, now: v.Now}
	heard := map[int]bool{}
	for _, s := range v.publishers() {
		r := PublisherRow{
			Name: s.Name, Rank: s.Ranks, Host: s.Host, Job: s.Job, Run: s.Run, Fenced: s.Run < v.Run.Run, Keep: s.Keep,
			Slots: []SlotRow{}, Updated: s.Updated,
		}
		for _, slot := range s.Slots {
			r.Slots = append(r.Slots, v.slotRow(slot))
		}
		for _, rank := range s.Ranks {
			heard[rank] = heard[rank] || !r.Fenced
		}
		l.Publishers = append(l.Publishers, r)
	}
	for rank := range v.Run.World {
		if !heard[rank] {
			l.Silent = append(l.Silent, rank)
		}
	}
	return l
}

// slotRow tells a slot with those who read its version: as its publisher says, or else as the leases do.
func (v *View) slotRow(s messages.Slot) SlotRow {
	holders := s.Holders
	if len(holders) == 0 && !s.Key.IsZero() {
		holders = v.Leases[s.Key]
	}
	return SlotRow{Version: keyText(s.Key), State: s.State, Holders: holders}
}

// Write draws the list for people.
func (l *PublisherList) Write(w io.Writer) error {
	t := table{head: []string{"PUBLISHER", "RANK", "HOST", "JOB", "RUN", "KEEPS", "SLOTS", "SEEN"}}
	for _, r := range l.Publishers {
		run := fmt.Sprint(r.Run)
		if r.Fenced {
			run += ", fenced"
		}
		t.add(r.Name, ranks(r.Rank), brief(r.Host, 16), orNone(r.Job), run, orNone(brief(r.Keep, 24)), slotsText(r.Slots), age(l.now, r.Updated))
	}
	if err := t.write(w, fmt.Sprintf("no publisher of model %s has reported within the last minute", printable(l.Model))); err != nil {
		return err
	}
	if len(l.Silent) > 0 {
		fmt.Fprintf(w, "\nrun %d has %d ranks; nothing is heard of %s\n", l.Run, l.World, ranks(l.Silent))
	}
	return nil
}

func slotsText(slots []SlotRow) string {
	var parts []string
	for _, s := range slots {
		parts = append(parts, s.text())
	}
	return orNone(strings.Join(parts, "; "))
}

func (s *SlotRow) text() string {
	text := strings.TrimSpace(s.Version + " " + s.State)
	if len(s.Holders) > 0 {
		text += ", read by " + names(s.Holders)
	}
	return text
}

// slotText draws a slot as its publisher tells it.
func slotText(s messages.Slot) string {
	row := SlotRow{Version: keyText(s.Key), State: s.State, Holders: s.Holders}
	return row.text()
}
