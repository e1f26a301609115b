package simulator

import (
	"errors"
	"flag"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	schedules = flag.Int("schedules", 2000, "random schedules to run")
	firstSeed = flag.Uint64("seed", 1, "seed of the first schedule")
)

// explain shrinks a failing schedule and prints what happened.
func explain(t *testing.T, seed uint64, s Schedule, m Mutation) string {
	t.Helper()
	short := Shrink(s, m, 4000)
	script, err := Replay(short, m)
	t.Logf("seed %d: %v\nshrunk from %d choices to %d:\n%s", seed, err, len(s), len(short), script)
	return script
}

func TestNothingGoesWrong(t *testing.T) {
	t.Parallel()
	script, err := Replay(nil, Mutation{})
	if err != nil {
		t.Fatalf("%v\n%s", err, script)
	}
	for _, want := range []string{"reader-0       serves 2.4", "reader-1       serves 2.4"} {
		if !strings.Contains(script, want) {
			t.Errorf("transcript lacks %q:\n%s", want, script)
		}
	}
}

func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	var next, steps atomic.Uint64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !failed.Load() {
				i := next.Add(1) - 1
				if i >= uint64(*schedules) {
					return
				}
				out := Random(*firstSeed+i, Mutation{})
				steps.Add(uint64(out.Steps))
				if out.Err != nil && failed.CompareAndSwap(false, true) {
					explain(t, *firstSeed+i, out.Schedule, Mutation{})
					t.Errorf("seed %d: %v", *firstSeed+i, out.Err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d schedules, %d steps", *schedules, steps.Load())
}

var mutationSchedules = flag.Uint64("mutation-schedules", 3000, "schedules within which each mutation must be caught")

func TestMutationsAreCaught(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		m    Mutation
		from uint64 // rare ones: where to begin, found with -mutation-schedules
	}{
		"commit before all tables are read back": {m: Mutation{CommitUnread: true}},
		"lease not confirmed":                    {m: Mutation{LeaseUnconfirmed: true}},
		"lease checked once":                     {m: Mutation{LeaseCheckedOnce: true}, from: 900},
		"lease not judged by the own clock":      {m: Mutation{ClockIgnored: true}, from: 800},
		"leases counted before the end":          {m: Mutation{CountBeforeEnd: true}, from: 800},
		"purge before lease scan":                {m: Mutation{FreeUncounted: true}},
		"leases counted at a replica":            {m: Mutation{LeasesFromReplica: true}},
		"commit confirmed at a replica":          {m: Mutation{CommitFromReplica: true}},
		"no fence":                               {m: Mutation{NoFence: true}},
		"no end in the commit's place":           {m: Mutation{NoEnd: true}},
		"purge of whatever is there":             {m: Mutation{PurgeAny: true}, from: 11700},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := c.from; seed < c.from+*mutationSchedules; seed++ {
				// A mutation that only makes somebody wait for ever proves nothing.
				if out := Random(seed, c.m); out.Err != nil && !errors.Is(out.Err, errNoEnd) {
					short := Shrink(out.Schedule, c.m, 400)
					t.Logf("seed %d, %d choices (%d before shrinking): %v", seed, len(short), len(out.Schedule), out.Err)
					return
				}
			}
			t.Errorf("not caught in %d schedules", *mutationSchedules)
		})
	}
}
