package messages_test

import (
	"slices"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

func TestKeepIsWrittenAndRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]messages.Keep{
		"1": {Last: 1}, "3": {Last: 3}, "every": {Last: 1, Every: true}, "2,every": {Last: 2, Every: true},
		"every:rx-0,rx-1": {Last: 1, Every: true, Readers: []string{"rx-0", "rx-1"}},
	} {
		k, err := messages.ParseKeep(text)
		if err != nil || k.String() != text || k.Last != want.Last || k.Every != want.Every || !slices.Equal(k.Readers, want.Readers) {
			t.Errorf("%q is %+v, written %q: %v", text, k, k, err)
		}
	}
	for _, text := range []string{"", "-1", "x", "every,", "2,", "2:rx-0", "every:", "every:a.b", "every,2", "1025", "every every"} {
		if k, err := messages.ParseKeep(text); err == nil {
			t.Errorf("%q is %+v", text, k)
		}
	}
	if s := (messages.Keep{}).String(); s != "1" {
		t.Errorf("nothing said is %q", s)
	}
}

// Exact replay: a version that a receiver has not served yet is not let go, however
// many there are; the publisher is told for whom it holds it.
func TestKeepEveryWaitsForTheSlowestReader(t *testing.T) {
	t.Parallel()
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), memory())
	ctx := natstest.Context(t, 20*time.Second)
	key := func(v uint64) messages.Key { return messages.Key{Run: 1, Version: v} }
	held := []messages.Key{key(4), key(2), key(3), key(1)} // a publisher's slots are in no order
	serves := func(name string, v uint64) {
		t.Helper()
		s := messages.Status{Role: messages.RoleReceiver}
		if v > 0 {
			s.Serving = key(v)
		}
		if err := c.PutStatus(ctx, name, s); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, keep messages.Keep, free []messages.Key, behind ...string) {
		t.Helper()
		got, who, err := c.Retirable(ctx, keep, held)
		if err != nil || !slices.Equal(got, free) || !slices.Equal(who, behind) {
			t.Errorf("%s: %v go, %q are behind, %v; want %v, %q", what, got, who, err, free, behind)
		}
	}
	every := messages.Keep{Every: true}
	check("nothing said", messages.Keep{}, []messages.Key{key(1), key(2), key(3)})
	check("the last three", messages.Keep{Last: 3}, []messages.Key{key(1)})
	check("nobody reads yet", every, nil)
	if err := c.PutStatus(ctx, "publisher-0", messages.Status{Role: messages.RolePublisher}); err != nil {
		t.Fatal(err)
	}
	serves("fast", 4)
	serves("slow", 1)
	check("one is slow", every, []messages.Key{key(1)}, "slow")
	serves("new", 0)
	check("one is new", every, nil, "new")
	check("only two are asked", messages.Keep{Every: true, Readers: []string{"fast", "slow"}}, []messages.Key{key(1)}, "slow")
	check("one is not there", messages.Keep{Every: true, Readers: []string{"fast", "late"}}, nil, "late")
	serves("slow", 3)
	serves("new", 4)
	check("all go on", every, []messages.Key{key(1), key(2), key(3)})
	check("and two are kept at least", messages.Keep{Every: true, Last: 2}, []messages.Key{key(1), key(2)})
	if _, _, err := c.Retirable(ctx, messages.Keep{Readers: []string{"fast"}}, held); err == nil {
		t.Error("readers without every were taken")
	}
}
