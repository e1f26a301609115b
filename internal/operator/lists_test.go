package operator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
)

func TestListsAreDrawn(t *testing.T) {
	t.Parallel()
	v := sampleView()
	golden(t, "versions.txt", drawn(t, v.VersionList(0)))
	golden(t, "receivers.txt", drawn(t, v.ReceiverList()))
	golden(t, "publishers.txt", drawn(t, v.PublisherList()))
	empty := &View{Model: "new", Now: now}
	var all []byte
	for _, a := range []Answer{empty.VersionList(0), empty.ReceiverList(), empty.PublisherList()} {
		all = append(all, drawn(t, a)...)
	}
	golden(t, "empty.txt", all)
}

func TestLimitKeepsTheNewest(t *testing.T) {
	t.Parallel()
	var got []string
	for _, r := range sampleView().VersionList(2).Versions {
		got = append(got, r.Version)
	}
	if want := []string{"2.4", "2.5"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestNoControlCharacters: nothing that a process wrote of itself reaches the terminal as a command.
func TestNoControlCharacters(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]0;owned\x07\r\u009b2J\u202e"
	v := sampleView()
	v.Model, v.Order.By, v.Order.Reason, v.Run.Job = evil, evil, evil, evil
	for i := range v.Statuses {
		s := &v.Statuses[i]
		s.Name, s.Host, s.Job, s.StageState = evil, evil, evil, evil
		s.Failure = &messages.Failure{Class: evil, Text: evil}
		s.Slots = []messages.Slot{{State: evil, Key: key(2, 5), Holders: []string{evil}}}
	}
	v.Versions[1].Ended.Reason = evil
	v.Leases[key(2, 4)] = []string{evil}
	v.Quarantined[0].Subject, v.Quarantined[0].Reason = evil, evil
	for name, a := range map[string]Answer{"versions": v.VersionList(0), "receivers": v.ReceiverList(), "publishers": v.PublisherList()} {
		var b strings.Builder
		if err := a.Write(&b); err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexAny(b.String(), evil[:1]+"\x07\r\u009b\u202e"); i >= 0 {
			t.Errorf("%s: control character at byte %d of %q", name, i, b.String())
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{ranks(nil), "–"},
		{ranks([]int{0, 1, 2, 5, 7, 8}), "0-2,5,7-8"},
		{names(nil), "–"},
		{names([]string{"a", "b", "c"}), "a, b, c"},
		{names([]string{"a", "b", "c", "d"}), "a, b and 2 more"},
		{brief("äöü", 3), "äöü"},
		{brief("äöüß", 3), "äö…"},
		{span(-time.Second), "0s"},
		{span(61 * time.Second), "1m01s"},
		{span(3*time.Hour + 59*time.Second), "3h00m"},
		{span(49 * time.Hour), "2d"},
		{age(now, time.Time{}), "–"},
		{Size(999).String(), "999 B"},
		{Size(2e12).String(), "2.00 TB"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"4096": 4096, "512MiB": 512 << 20, "2 GB": 2e9, "1k": 1024, "8g": 8 << 30, "0": 0, "7B": 7} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q is %d (%v), want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GB", "1XB", "9999999999GiB", "1 2"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken for %d", text, s)
		}
	}
}
