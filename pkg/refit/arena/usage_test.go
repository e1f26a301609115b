package arena

import "testing"

// TestUsageFollowsEverySlot takes a slot through its states. Each state is always there, also with nothing in it: a gauge
// that is not set again would go on showing what was.
func TestUsageFollowsEverySlot(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	want := func(when string, states map[string]int) {
		t.Helper()
		usage, slots := s.Usage(), 0
		if len(usage) != 5 {
			t.Errorf("%s: %d states: %v", when, len(usage), usage)
		}
		for state, u := range usage {
			slots += u.Slots
			if u.Slots != states[state] || u.Nbytes != int64(u.Slots)*s.slotBytes() {
				t.Errorf("%s: %d slots of %d bytes are %s, expected %d", when, u.Slots, u.Nbytes, state, states[state])
			}
		}
	}
	want("at first", map[string]int{"free": 2})
	first := stage(t, s, 1)
	want("staging", map[string]int{"free": 1, "staging": 1})
	flip(t, s, first)
	want("serving", map[string]int{"free": 1, "serving": 1})
	second := stage(t, s, 2)
	flip(t, s, second)
	want("the next one serves", map[string]int{"retained": 1, "serving": 1})
	third, err := acquire(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Quarantine(third); err != nil {
		t.Fatal(err)
	}
	want("quarantined", map[string]int{"quarantined": 1, "serving": 1})
}
