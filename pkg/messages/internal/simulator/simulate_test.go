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
	for name, m := range map[string]Mutation{
		"commit before all tables are read back": {CommitUnread: true},
		"lease not confirmed":                    {LeaseUnconfirmed: true},
		"lease checked once":                     {LeaseCheckedOnce: true},
		"leases counted before the end":          {CountBeforeEnd: true},
		"purge before lease scan":                {FreeUncounted: true},
		"leases counted at a replica":            {LeasesFromReplica: true},
		"commit confirmed at a replica":          {CommitFromReplica: true},
		"no fence":                               {NoFence: true},
		"purge of whatever is there":             {PurgeAny: true},
		"no end in the commit's place":           {NoEnd: true},
		"renewal counted from its last attempt":  {LateSince: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= *mutationSchedules; seed++ {
				// A mutation that only makes somebody wait for ever proves nothing.
				if out := Random(seed, m); out.Err != nil && !errors.Is(out.Err, errNoEnd) {
					short := Shrink(out.Schedule, m, 400)
					t.Logf("seed %d, %d choices (%d before shrinking): %v", seed, len(short), len(out.Schedule), out.Err)
					return
				}
			}
			t.Errorf("not caught in %d schedules", *mutationSchedules)
		})
	}
}
