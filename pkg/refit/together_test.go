package refit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
)

// rankEngine is the part of an engine that one receiver feeds.
type rankEngine struct {
	mu      sync.Mutex
	key     messages.Key
	peers   []Member
	calls   int
	instead func(ctx context.Context, in Installation) error // nil: it says yes
}

func (e *rankEngine) Install(ctx context.Context, in Installation) (Report, error) {
	e.mu.Lock()
	instead := e.instead
	e.calls++
	e.mu.Unlock()
	if instead != nil {
		if err := instead(ctx, in); err != nil {
			return Report{}, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.key, e.peers = in.Key, in.Peers
	return Report{}, nil
}

func (e *rankEngine) does(f func(ctx context.Context, in Installation) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.instead = f
}

func (e *rankEngine) serves() messages.Key {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.key
}

// pair is one engine of two ranks, fed by a receiver each, as on two hosts.
type pair struct {
	*world
	engines   [2]*rankEngine
	receivers [2]*Receiver
}

func newPair(t *testing.T, patience time.Duration) *pair {
	t.Helper()
	p := &pair{world: newWorld(t, worldOptions{ranks: 2})}
	for i, name := range []string{"east", "west"} {
		e := &rankEngine{}
		p.engines[i] = e
		p.receivers[i] = p.receiver(func(c *ReceiverConfig) {
			c.Name, c.Installer, c.Dests = name, e, []plan.Dest{destination(i)}
			c.Engine = Engine{Name: "big", Size: 2, Patience: patience}
		})
	}
	return p
}

// apply stages on both receivers and applies on both at once; errs are theirs.
func (p *pair) apply(key messages.Key) (errs [2]error) {
	p.t.Helper()
	var wg sync.WaitGroup
	for i, r := range p.receivers {
		wg.Go(func() {
			s, err := r.Stage(p.ctx, key)
			if err == nil {
				err = r.Apply(p.ctx, s)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return errs
}

// both checks what engines, names and files say, on both.
func (p *pair) both(version uint64) {
	p.t.Helper()
	for i := range p.receivers {
		p.one(i, version)
	}
}

func (p *pair) one(i int, version uint64) {
	p.t.Helper()
	r := p.receivers[i]
	if got, named := p.engines[i].serves().Version, r.Serving().Version; got != version || named != version {
		p.t.Errorf("%s: the engine serves %d, its name says %d, want %d", r.cfg.Name, got, named, version)
	}
	f, err := safetensors.Open(filepath.Join(r.ArenaRoot(), "current", fmt.Sprintf("rank-%d.safetensors", i)))
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for name, want := range expected(i, version) {
		if tensor, ok := f.Find(name); !ok || !bytes.Equal(f.Bytes(tensor), want) {
			p.t.Errorf("%s: parameter %s is not that of version %d", r.cfg.Name, name, version)
		}
	}
}

func (p *pair) mustApply(key messages.Key) {
	p.t.Helper()
	if errs := p.apply(key); errs[0] != nil || errs[1] != nil {
		p.t.Fatalf("apply %s: %v; %v", key, errs[0], errs[1])
	}
	p.both(key.Version)
}

func TestTwoReceiversInstallTogether(t *testing.T) {
	t.Parallel()
	p := newPair(t, patience)
	for v := uint64(1); v <= 3; v++ {
		p.mustApply(p.publish(v))
	}
	peers := p.engines[0].peers
	if len(peers) != 1 || peers[0].Name != "west" || len(peers[0].Files) != 1 || !strings.HasSuffix(peers[0].Files[0], "rank-1.safetensors") {
		t.Errorf("east's installer was told of %+v", peers)
	}
}

func TestIfOneRefusesAllReturn(t *testing.T) {
	t.Parallel()
	p := newPair(t, patience)
	p.mustApply(p.publish(1))
	p.engines[1].does(func(_ context.Context, in Installation) error {
		if in.Key.Version == 2 {
			return errors.New("not these")
		}
		return nil
	})
	errs := p.apply(p.publish(2))
	if ClassOf(errs[0]) != GroupRefused || !strings.Contains(errs[0].Error(), "receiver west: not these") {
		t.Errorf("east: class %s: %v", ClassOf(errs[0]), errs[0])
	}
	if ClassOf(errs[1]) != InstallRefused {
		t.Errorf("west: class %s: %v", ClassOf(errs[1]), errs[1])
	}
	p.both(1)
	p.mustApply(p.publish(3))
}

func TestWhoWaitsInVainStaysOnTheOldVersion(t *testing.T) {
	t.Parallel()
	p := newPair(t, 300*time.Millisecond)
	p.engines[0].does(nil)
	one := p.publish(1)
	s, err := p.receivers[0].Stage(p.ctx, one)
	if err == nil {
		err = p.receivers[0].Apply(p.ctx, s)
	}
	if ClassOf(err) != GroupLate || !strings.Contains(err.Error(), "1 of 2 receivers to stage it (east are there)") {
		t.Fatalf("class %s: %v", ClassOf(err), err)
	}
	if p.engines[0].calls != 0 {
		t.Error("the engine was asked although the other receiver was not there")
	}
	p.servesNothing(p.receivers[0])
}

// TestAMemberThatDiesBetweenPrepareAndCommitHoldsNobody stages on west only; the other member came in and is gone.
func TestAMemberThatDiesBetweenPrepareAndCommitHoldsNobody(t *testing.T) {
	t.Parallel()
	p := newPair(t, 500*time.Millisecond)
	p.receivers[0].cfg.Engine.Patience, p.receivers[1].cfg.Engine.Patience = patience, patience
	p.mustApply(p.publish(1))
	p.receivers[1].cfg.Engine.Patience = 300 * time.Millisecond
	two := p.publish(2)
	p.phantom(two)
	west := p.receivers[1]
	s, err := west.Stage(p.ctx, two)
	if err == nil {
		err = west.Apply(p.ctx, s)
	}
	if ClassOf(err) != GroupLate || !strings.Contains(err.Error(), "for east to install it") {
		t.Fatalf("class %s: %v", ClassOf(err), err)
	}
	p.both(1)
	if p.engines[1].calls != 3 { // 1, 2, and 1 again
		t.Errorf("west's engine was asked %d times", p.engines[1].calls)
	}
	west.cfg.Engine.Patience = patience
	p.mustApply(two) // when it is back
}

// phantomEast is an earlier life of east.
var phantomEast = messages.EngineMember{Name: "east", Life: "phantom", Ranks: []int{0}, Files: []string{"/gone"}}

// phantom has east come into a round, as if it had died right afterwards.
func (p *pair) phantom(key messages.Key) {
	p.t.Helper()
	ghost := &together{r: p.receivers[0], bid: bid{me: phantomEast, size: 2, key: key}}
	if _, _, err := ghost.comeIn(p.ctx); err != nil {
		p.t.Fatal(err)
	}
}

func TestAReceiverThatComesBackInTheMiddleEndsTheRound(t *testing.T) {
	t.Parallel()
	p := newPair(t, patience)
	p.mustApply(p.publish(1))
	two := p.publish(2)
	p.phantom(two)
	inside := make(chan struct{})
	p.engines[1].does(func(_ context.Context, in Installation) error {
		if in.Key == two {
			close(inside)
			p.engines[1].does(nil)
		}
		return nil
	})
	west := make(chan error, 1)
	s, err := p.receivers[1].Stage(p.ctx, two)
	if err != nil {
		t.Fatal(err)
	}
	go func() { west <- p.receivers[1].Apply(p.ctx, s) }()
	<-inside
	if done, err := p.receivers[0].restoreOnce(p.ctx, p.receivers[0].Serving()); !done || err != nil {
		t.Fatalf("east's engine is not restored: %v", err)
	}
	if err := <-west; ClassOf(err) != GroupLate || !strings.Contains(err.Error(), "east: it was restarted") {
		t.Errorf("west: class %s: %v", ClassOf(err), err)
	}
	p.both(1)
	p.mustApply(two)
}

func TestAReceiverThatMissedTheCommitFollows(t *testing.T) {
	t.Parallel()
	p := newPair(t, patience)
	p.mustApply(p.publish(1))
	two := p.publish(2)
	west := p.receivers[1]
	p.engines[1].does(func(context.Context, Installation) error { return nil })
	p.phantom(two)
	s, err := west.Stage(p.ctx, two)
	if err != nil {
		t.Fatal(err)
	}
	east := &together{r: p.receivers[0], attempt: 2, bid: bid{me: phantomEast}} // its life ends after its yes
	go func() {
		for p.ctx.Err() == nil {
			r, err := east.change(p.ctx, func(r *messages.EngineRecord) (*messages.EngineRecord, error) {
				return installed(r, 2, &phantomEast), nil
			})
			if err != nil || r.Phase == messages.EngineCommitted {
				return
			}
		}
	}()
	if err := west.Apply(p.ctx, s); err != nil {
		t.Fatal(err)
	}
	p.one(1, 2)
	if done, err := p.receivers[0].restoreOnce(p.ctx, p.receivers[0].Serving()); !done || err != nil || p.engines[0].serves().Version != 1 {
		t.Errorf("east's engine was given version %s, %v", p.engines[0].serves(), err)
	}
	again, err := p.receivers[0].Stage(p.ctx, two)
	if err == nil {
		err = p.receivers[0].Apply(p.ctx, again)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.both(2)
}

func TestAnUnknownEndIsSettledLater(t *testing.T) {
	t.Parallel()
	p := newPair(t, patience)
	p.mustApply(p.publish(1))
	east := p.receivers[0]
	p.phantom(p.publish(2))
	if _, err := (&together{r: east, attempt: 2, bid: bid{me: member("east")}}).abort(p.ctx, "late", false); err != nil {
		t.Fatal(err)
	}
	east.doubtful = 2 // it took version 2, said yes, and was cut off
	p.engines[0].key = messages.Key{Run: 1, Version: 2}
	before := p.engines[0].calls
	p.mustApply(p.publish(3))
	if p.engines[0].calls != before+2 || east.doubtful != 0 { // back to 1, then 3
		t.Errorf("%d calls of east's engine, doubtful %d", p.engines[0].calls-before, east.doubtful)
	}
}

func TestAStoppedReceiverDoesNotHoldTheOthers(t *testing.T) {
	t.Parallel()
	p := newPair(t, patience)
	p.mustApply(p.publish(1))
	two := p.publish(2)
	ctx, stop := context.WithCancel(p.ctx)
	p.engines[0].does(func(ctx context.Context, in Installation) error {
		if in.Key == two {
			stop()
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	var wg sync.WaitGroup
	var errs [2]error
	for i, r := range p.receivers {
		wg.Go(func() {
			s, err := r.Stage(p.ctx, two)
			if err == nil {
				err = r.Apply([]context.Context{ctx, p.ctx}[i], s)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if ClassOf(errs[0]) != EngineUnknown || !strings.Contains(errs[0].Error(), "the old version was installed again") {
		t.Errorf("east: class %s: %v", ClassOf(errs[0]), errs[0])
	}
	if ClassOf(errs[1]) != GroupLate {
		t.Errorf("west: class %s: %v", ClassOf(errs[1]), errs[1])
	}
	p.both(1)
}

func TestAnEngineOfTwoIsFollowedByBoth(t *testing.T) {
	t.Parallel()
	p := newPair(t, patience)
	for _, r := range p.receivers {
		p.follow(r)
	}
	for v := uint64(1); v <= 3; v++ {
		key := p.publish(v)
		p.eventually("both serve", func() bool { return p.receivers[0].Serving() == key && p.receivers[1].Serving() == key })
	}
	p.both(3)
	// An order takes both back.
	if _, err := p.control.Rollback(p.ctx, p.ranks[0].Key(2), "a test", "to see"); err != nil {
		t.Fatal(err)
	}
	p.eventually("both are back", func() bool { return p.receivers[0].Serving().Version == 2 && p.receivers[1].Serving().Version == 2 })
	p.both(2)
}
