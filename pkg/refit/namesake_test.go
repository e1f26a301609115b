package refit

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
)

// TestTheOneThatIsReplacedEndsTheRound is the pure part: a life that comes in under a name takes the place of the one
// before, as after a restart; the one before, if it lives, sees that at each point of the round.
func TestTheOneThatIsReplacedEndsTheRound(t *testing.T) {
	t.Parallel()
	second := bidOf("east", 1)
	second.me.Life, second.me.Host, second.me.Files = "2", "elsewhere", []string{"/other/rank-0"}
	first := member("east")

	gathering := joined(t, &messages.EngineRecord{Engine: "e"}, bidOf("east", 1), standGathering)
	gathering = joined(t, gathering, second, standGathering)
	if len(gathering.Members) != 1 || look(gathering, 1, &first) != standReplaced || look(gathering, 1, &second.me) != standGathering {
		t.Fatalf("the first stands at %d, the second at %d: %+v", look(gathering, 1, &first), look(gathering, 1, &second.me), gathering)
	}
	why := namesakes(&first, replaced(gathering, &first))
	for _, word := range []string{"called east", "host-east", "/arenas/east", "elsewhere", "/other"} {
		if !strings.Contains(why, word) {
			t.Errorf("%q does not say %q", why, word)
		}
	}
	ended := abort(gathering, 1, "east", why, true)
	if look(ended, 1, &first) != standAborted || look(ended, 1, &second.me) != standAborted {
		t.Error("one of the two goes on")
	}

	installing := joined(t, gathering, bidOf("west", 1), standInstalling)
	if installed(installing, 1, &first) != nil || look(installing, 1, &first) != standReplaced {
		t.Error("the one that was replaced may say yes for the other")
	}
	committed := installed(yes(installing, 1, "west"), 1, &second.me)
	if look(committed, 1, &second.me) != standCommitted || look(committed, 1, &first) != standReplaced {
		t.Error("the one that was replaced takes the others' commit for its own")
	}
}

// namesake makes another receiver that is called east, on a host of its own.
func (p *pair) namesake(e *rankEngine, patience time.Duration) *Receiver {
	p.t.Helper()
	return p.receiver(func(c *ReceiverConfig) {
		c.Name, c.Host, c.Installer, c.Dests = "east", "another-host", e, []plan.Dest{destination(1)}
		c.Engine = Engine{Name: "big", Size: 2, Patience: patience}
	})
}

// TestTwoReceiversOfOneNameAreRefused has the second of the two, which was meant to be called west, come in from another
// host. Neither waits for its patience, no engine is touched, and both say who is meant.
func TestTwoReceiversOfOneNameAreRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, patience)
	engine := &rankEngine{}
	east, other := p.receivers[0], p.namesake(engine, patience)
	one := p.publish(1)
	ctx, stop := context.WithTimeout(p.ctx, patience/2) // before anybody's patience ends
	defer stop()
	var wg sync.WaitGroup
	var errs [2]error
	for i, r := range []*Receiver{east, other} {
		s, err := r.Stage(ctx, one) // one after the other: the lease goes by the name, too
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { errs[i] = r.Apply(ctx, s) })
	}
	wg.Wait()
	for _, err := range errs {
		if ClassOf(err) != GroupRefused || !strings.Contains(err.Error(), "two receivers are called east") || !strings.Contains(err.Error(), "another-host") {
			t.Errorf("class %s: %v", ClassOf(err), err)
		}
	}
	if p.engines[0].calls+engine.calls != 0 {
		t.Error("an engine was asked")
	}
	p.servesNothing(east)
	p.servesNothing(other)
	p.mustApply(p.publish(2)) // once the other is called otherwise, or gone
}

// TestANamesakeThatComesInTheMiddleEndsTheRound has all of the engine's receivers installing when another east shows up.
func TestANamesakeThatComesInTheMiddleEndsTheRound(t *testing.T) {
	t.Parallel()
	p := newPair(t, patience)
	p.mustApply(p.publish(1))
	other := p.namesake(&rankEngine{}, 300*time.Millisecond)
	two := p.publish(2)
	late, err := other.Stage(p.ctx, two)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	seen := make(chan error, 1)
	p.engines[1].does(func(_ context.Context, in Installation) error {
		if in.Key == two {
			once.Do(func() { seen <- other.Apply(p.ctx, late) })
		}
		return nil
	})
	errs := p.apply(two)
	if ClassOf(errs[0]) != GroupLate || !strings.Contains(errs[0].Error(), "another process called east") {
		t.Errorf("east: class %s: %v", ClassOf(errs[0]), errs[0])
	}
	if ClassOf(errs[1]) != GroupLate {
		t.Errorf("west: class %s: %v", ClassOf(errs[1]), errs[1])
	}
	if err := <-seen; err == nil {
		t.Error("the other east serves the version")
	}
	p.both(1)
	p.engines[1].does(nil)
	p.mustApply(two)
}
