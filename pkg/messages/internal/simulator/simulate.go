package simulator

import (
	"math/rand/v2"
	"strings"
)

// Schedule is the list of choices that a run made.
type Schedule []uint32

// Outcome is how one run went.
type Outcome struct {
	Err      error // the violated invariant; nil: none
	Schedule Schedule
	Steps    int
}

// Random makes one run with choices drawn from seed.
func Random(seed uint64, m Mutation) Outcome {
	w := newWorld(choices{rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}, m, false)
	err := w.runAll()
	return Outcome{Err: err, Schedule: w.choose.list, Steps: w.steps}
}

// Replay makes the run of a schedule again and draws its transcript.
func Replay(s Schedule, m Mutation) (transcript string, err error) {
	w := newWorld(choices{list: append(Schedule{}, s...)}, m, true)
	err = w.runAll()
	return strings.Join(w.script, "\n"), err
}

// Shrink takes choices away as long as the run still violates an invariant. It makes at
// most budget runs.
func Shrink(s Schedule, m Mutation, budget int) Schedule {
	fails := func(c Schedule) bool {
		budget--
		w := newWorld(choices{list: append(Schedule{}, c...)}, m, false)
		return w.runAll() != nil
	}
	for size := len(s) / 2; size > 0 && budget > 0; {
		shrunk := false
		for at := 0; at+size <= len(s) && budget > 0; {
			if c := cut(s, at, size); fails(c) {
				s, shrunk = c, true
				continue
			}
			if c, changed := zero(s, at, size); changed && fails(c) {
				s, shrunk = c, true
			}
			at += size
		}
		if !shrunk || size > 1 {
			size /= 2
		}
	}
	return s
}

func cut(s Schedule, at, n int) Schedule {
	return append(append(Schedule{}, s[:at]...), s[at+n:]...)
}

// zero makes choices harmless.
func zero(s Schedule, at, n int) (Schedule, bool) {
	c := append(Schedule{}, s...)
	changed := false
	for i := at; i < at+n; i++ {
		changed = changed || c[i] != 0
		c[i] = 0
	}
	return c, changed
}
