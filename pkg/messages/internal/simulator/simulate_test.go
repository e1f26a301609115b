package simulator

import (
	"errors"
	"flag"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
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

// The schedules would prove nothing of partial versions if none were staged upon its base.
func TestDifferencesAreStaged(t *testing.T) {
	t.Parallel()
	staged := 0
	for seed := uint64(1); seed <= 20; seed++ {
		script, err := Replay(Random(seed, Mutation{}).Schedule, Mutation{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		staged += strings.Count(script, "as a difference upon")
	}
	if staged < 10 {
		t.Errorf("%d differences were staged in 20 schedules", staged)
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
		"leases counted before the end":          {m: Mutation{CountBeforeEnd: true}, from: 2500},
		"purge before lease scan":                {m: Mutation{FreeUncounted: true}},
		"leases counted at a replica":            {m: Mutation{LeasesFromReplica: true}},
		"commit confirmed at a replica":          {m: Mutation{CommitFromReplica: true}},
		"no fence":                               {m: Mutation{NoFence: true}},
		"no end in the commit's place":           {m: Mutation{NoEnd: true}},
		"difference upon another version":        {m: Mutation{BaseIgnored: true}},
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

// TestLatePurge is the shortest form of a schedule that the simulator once found (seed
// 1094): a purge is given up and arrives late, after it a manifest that was on its
// way all the time. A purge of whatever is there would remove the end, and the version
// would come back although its buffers are free.
func TestLatePurge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		m    Mutation
		want protocol.Class
	}{
		"up to the manifest": {Mutation{}, protocol.ClassRetired},
		"whatever is there":  {Mutation{PurgeAny: true}, protocol.ClassManifest},
	} {
		s := newStore()
		key := protocol.Key{Run: 1, Version: 1}
		place := protocol.Place{Kind: protocol.KindCommit, Key: key}
		manifest := protocol.Intent{Verb: protocol.Put, Place: place, Body: manifestBody(key, nil), Fence: 1}
		s.apply(manifest, 0, 0)
		retire := &protocol.Retire{Key: key, End: protocol.Body{Class: protocol.ClassRetired}, EndTTL: endTTL}
		look := retire.Step(protocol.Result{})
		late, _ := c.m.perform(retire.Step(s.apply(look, 0, 0)))
		if late.Verb != protocol.Purge {
			t.Fatalf("%s: verb %d, want a purge", name, late.Verb)
		}
		res := protocol.Result{Outcome: protocol.Unknown} // it is given up
		for in := retire.Step(res); in.Verb != protocol.Done; in = retire.Step(res) {
			if in.Verb == protocol.Wait {
				res = protocol.Result{Outcome: protocol.OK}
				continue
			}
			res = s.apply(in, 0, 0)
		}
		s.apply(late, 0, 0)
		s.apply(manifest, 0, 0)
		if it, _ := s.read(place, 0); it.Body.Class != c.want {
			t.Errorf("%s: %s stands in the commit's place, want %s", name, classNames[it.Body.Class], classNames[c.want])
		}
	}
}
