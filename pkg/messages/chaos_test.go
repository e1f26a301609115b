package messages_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

var chaosFor = flag.Duration("chaos", 6*time.Second, "how long each chaos test makes trouble")

// Sizes of the fleet that lives through the trouble.
const (
	fleetRanks   = 4
	fleetReaders = 4
	fleetSlots   = 2
)

// fleet is a training job and its receivers, whose "memory" is a table of which version
// each buffer holds. It checks on real servers what the simulator checks in thought:
// no torn, regressed or freed version is ever read.
type fleet struct {
	t    *testing.T
	url  string
	cfg  messages.Config
	run  messages.RunRecord
	work sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc

	longest  time.Duration // that a receiver lives before it dies and starts again
	mu       sync.Mutex
	memory   [fleetRanks][fleetSlots]messages.Key
	retired  map[messages.Key]bool
	restarts atomic.Int64

	committed atomic.Uint64 // newest version that some rank saw committed
	installed [fleetReaders]atomic.Uint64
}

func startFleet(t *testing.T, url string, cfg messages.Config) *fleet {
	t.Helper()
	return startFleetThatLives(t, url, cfg, 4*time.Second)
}

func startFleetThatLives(t *testing.T, url string, cfg messages.Config, longest time.Duration) *fleet {
	t.Helper()
	cfg.Model, cfg.LeaseTTL, cfg.Poll, cfg.OpTimeout = model, 3*time.Second, 500*time.Millisecond, time.Second
	f := &fleet{t: t, url: url, cfg: cfg, longest: longest, retired: map[messages.Key]bool{}}
	f.ctx, f.stop = context.WithCancel(natstest.Context(t, 5*time.Minute))
	c, _ := f.control("init")
	if c == nil {
		t.FailNow()
	}
	f.run = takeRun(t, c, "chaos", fleetRanks)
	for rank := range fleetRanks {
		f.work.Go(func() { f.publish(rank) })
	}
	for i := range fleetReaders {
		f.work.Go(func() { f.follow(i) })
	}
	return f
}

// control opens a control of its own connection, and gives what closes both; it
// initialises what is missing. Nil when the fleet has ended.
func (f *fleet) control(name string) (c *messages.Control, end func()) {
	nc, err := messages.Dial(f.url, messages.DialConfig{Name: name, Retry: true})
	if err != nil {
		f.t.Error(err)
		return nil, nil
	}
	f.t.Cleanup(nc.Close)
	ctx := natstest.Context(f.t, 2*time.Minute)
	for f.ctx.Err() == nil {
		if err = messages.Init(ctx, nc, f.cfg); err == nil {
			if c, err = messages.Open(ctx, nc, f.cfg); err == nil {
				end = func() {
					_ = c.Close() // always nil
					nc.Close()
				}
				f.t.Cleanup(end)
				return c, end
			}
		}
		if ctx.Err() != nil {
			f.t.Errorf("%s could not open the model: %v", name, err)
			return nil, nil
		}
		f.wait(100 * time.Millisecond)
	}
	return nil, nil
}

// insist repeats an operation while servers are away, as programs do.
func (f *fleet) insist(what string, op func(context.Context) error) bool {
	for f.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(f.ctx, 10*time.Second)
		err := op(ctx)
		cancel()
		switch {
		case err == nil:
			return true
		case errors.Is(err, messages.ErrUnavailable), errors.Is(err, messages.ErrIncomplete), errors.Is(err, messages.ErrHeld),
			errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		default:
			f.t.Errorf("%s: %v", what, err)
			f.stop()
			return false
		}
	}
	return false
}

// publish is one rank's life.
func (f *fleet) publish(rank int) {
	c, _ := f.control(fmt.Sprintf("rank-%d", rank))
	for v := uint64(1); f.ctx.Err() == nil && c != nil; v++ {
		key := messages.Key{Run: f.run.Run, Version: v}
		if v > fleetSlots {
			old := messages.Key{Run: f.run.Run, Version: v - fleetSlots}
			if !f.insist(fmt.Sprintf("rank %d retires %s", rank, old), func(ctx context.Context) error { return c.Retire(ctx, old, rank) }) {
				return
			}
		}
		f.mu.Lock()
		f.memory[rank][v%fleetSlots] = key
		f.mu.Unlock()
		if !f.insist(fmt.Sprintf("rank %d publishes %s", rank, key), func(ctx context.Context) error { return c.Publish(ctx, publication(key, rank, fleetRanks)) }) ||
			!f.insist(fmt.Sprintf("rank %d commits %s", rank, key), func(ctx context.Context) error { _, err := c.Commit(ctx, key, fleetRanks); return err }) {
			return
		}
		f.committed.Store(max(f.committed.Load(), v))
	}
}

// follow is one receiver's life; now and then it dies and starts again.
func (f *fleet) follow(i int) {
	name := fmt.Sprintf("rx-%d", i)
	serving := messages.Key{}
	for f.ctx.Err() == nil {
		c, end := f.control(name)
		if c == nil {
			return
		}
		ctx, cancel := context.WithTimeout(f.ctx, f.longest/4+rand.N(f.longest*3/4))
		watch, err := c.WatchWith(ctx, messages.WatchOptions{After: serving})
		if err != nil {
			f.t.Error(err)
		}
		for a := range watch {
			if f.install(ctx, c, name, a.Key, serving) {
				serving = a.Key
				f.installed[i].Store(a.Key.Version)
			}
		}
		cancel()
		end() // its lease, if any, is left to expire
		f.restarts.Add(1)
	}
}

func (f *fleet) install(ctx context.Context, c *messages.Control, name string, key, serving messages.Key) bool {
	lease, err := c.AcquireLease(ctx, key, name)
	if err != nil {
		return false
	}
	defer func() { _ = lease.Release(ctx) }() // a lease that is not released expires
	v, err := c.Assemble(ctx, key)
	if err != nil {
		return false
	}
	for rank, r := range v.Ranks {
		f.mu.Lock()
		got := f.memory[rank][key.Version%fleetSlots]
		f.mu.Unlock()
		if lease.Valid() && (got != key || r.Tiles.Digests[0] != key.Version<<8|uint64(rank)) {
			f.t.Errorf("%s read %s from rank %d and got %s", name, key, rank, got)
		}
	}
	if lease.Confirm(ctx) != nil {
		return false
	}
	if !serving.Less(key) {
		f.t.Errorf("%s went from %s back to %s", name, serving, key)
	}
	return true
}

// advance waits until all receivers serve versions that were committed after now.
func (f *fleet) advance(within time.Duration) {
	f.t.Helper()
	f.reach(f.committed.Load()+2, within)
}

// reach waits until all receivers serve a version, or a newer one.
func (f *fleet) reach(goal uint64, within time.Duration) {
	f.t.Helper()
	deadline := time.Now().Add(within)
	for i := range f.installed {
		for f.installed[i].Load() < goal {
			if time.Now().After(deadline) || !f.wait(10*time.Millisecond) {
				f.t.Errorf("receiver %d serves %d, and should serve %d after %v", i, f.installed[i].Load(), goal, within)
				return
			}
		}
	}
}

// wait lets others make progress; false when the fleet has ended.
func (f *fleet) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-f.ctx.Done():
		return false
	}
}

func (f *fleet) end() {
	f.stop()
	f.work.Wait()
	f.t.Logf("%d versions committed, receivers started again %d times", f.committed.Load(), f.restarts.Load())
}

// TestChaosRestarts: a single server with a file store is stopped and started again
// and again, while versions are published and receivers come and go.
// It runs alone: the machine is busy enough.
func TestChaosRestarts(t *testing.T) {
	s := natstest.Start(t, natsd.Options{SyncAlways: true})
	f := startFleet(t, s.URL(), messages.Config{})
	f.advance(time.Minute)
	for began := time.Now(); time.Since(began) < *chaosFor; {
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		f.advance(time.Minute)
	}
	f.end()
}

// TestChaosCluster: three server processes with three replicas; the stream's leader, or
// a follower, is killed in the middle of publishing, and comes back later.
func TestChaosCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs three server processes")
	}
	cluster := natstest.StartCluster(t)
	f := startFleet(t, cluster.URL(), messages.Config{Replicas: 3})
	f.advance(time.Minute)
	stream := "REFIT_" + messages.Token(model)
	for began, round := time.Now(), 0; round < 2 || time.Since(began) < *chaosFor; round++ {
		leader := cluster.Leader(stream)
		victim := leader
		if round%2 == 1 || leader < 0 {
			victim = (leader + 1) % 3
		}
		killed := time.Now()
		cluster.Kill(victim)
		// Elections of a killed leader take up to 10.2 s; work resumes 2 s after.
		f.advance(time.Minute)
		t.Logf("server %d (leader was %d) killed: two more versions were installed everywhere after %v", victim, leader, time.Since(killed).Round(time.Millisecond))
		cluster.Start(victim)
		f.advance(time.Minute)
	}
	f.end()
}

// TestChaosSlowDisk: the stream's leader works a fifth of the time only, in pieces of
// a tenth of a second, as a server does whose every write waits for a slow disk. In
// make chaos it then freezes for longer than an election takes, and comes back
// believing that it leads. Receivers that start meanwhile and dial it are accepted by its
// kernel, and wait two seconds for a word of it.
func TestChaosSlowDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs three server processes")
	}
	cluster := natstest.StartCluster(t)
	f := startFleet(t, cluster.URL(), messages.Config{Replicas: 3})
	f.advance(time.Minute)
	stream := "REFIT_" + messages.Token(model)
	for began, round := time.Now(), 0; round < 1 || time.Since(began) < *chaosFor; round++ {
		slow := max(cluster.Leader(stream), 0)
		ctx, stop := context.WithCancel(f.ctx)
		var pulses sync.WaitGroup
		pulses.Go(func() {
			defer cluster.Stop(slow, false)
			for ctx.Err() == nil {
				cluster.Stop(slow, true)
				f.wait(80 * time.Millisecond)
				cluster.Stop(slow, false)
				f.wait(20 * time.Millisecond)
			}
		})
		slowed := time.Now()
		f.advance(time.Minute)
		t.Logf("server %d is slow: two more versions were installed everywhere after %v", slow, time.Since(slowed).Round(time.Millisecond))
		stop()
		pulses.Wait()
		if *chaosFor < time.Minute {
			break
		}
		frozen := max(cluster.Leader(stream), 0)
		cluster.Stop(frozen, true)
		stopped := time.Now()
		f.advance(2 * time.Minute)
		t.Logf("server %d is frozen: two more versions were installed everywhere after %v", frozen, time.Since(stopped).Round(time.Millisecond))
		cluster.Stop(frozen, false)
		f.advance(time.Minute)
	}
	f.end()
}

// TestLostData: a server forgets everything; the publisher that holds the version puts
// run, version and commit back, and the run number is not given out again.
func TestLostData(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	ctx := natstest.Context(t, 30*time.Second)
	takeRun(t, c, "older", 1)
	run := takeRun(t, c, "job", 1)
	key := messages.Key{Run: run.Run, Version: 3}
	publishAll(t, c, key, 1)
	if err := c.Restore(ctx, run, publication(key, 0, 1)); err != nil {
		t.Fatalf("nothing is lost: %v", err)
	}
	if err := s.Restart(); err != nil { // streams in memory are gone
		t.Fatal(err)
	}
	again := natstest.Open(t, s, memory())
	if _, ok, err := again.Newest(ctx); ok || err != nil {
		t.Fatalf("something survived in memory: %v", err)
	}
	if err := c.Restore(ctx, run, publication(key, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if k, ok, err := again.Newest(ctx); !ok || k != key || err != nil {
		t.Errorf("newest is %s, %v, %v", k, ok, err)
	}
	if v, err := again.Assemble(ctx, key); err != nil || v.Run.Nonce != run.Nonce {
		t.Errorf("assembled %v, %v", v, err)
	}
	if next := takeRun(t, again, "newer", 1); next.Run != run.Run+1 {
		t.Errorf("the next run is %d, the lost one was %d", next.Run, run.Run)
	}
}

// TestLostDataFoundLate: a server forgets everything, and versions are published on before anybody has looked what is gone.
// The first look puts back what no publication brings: the run's record, without which receivers follow nothing, and the
// blobs that each rank believes stored.
func TestLostDataFoundLate(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	ctx := natstest.Context(t, 30*time.Second)
	ranks := []*messages.Control{natstest.Open(t, s, memory()), natstest.Open(t, s, memory())}
	run := takeRun(t, ranks[0], "job", 2)
	publish := func(version uint64) {
		t.Helper()
		for r, c := range ranks {
			if err := c.Publish(ctx, publication(messages.Key{Run: run.Run, Version: version}, r, 2)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ranks[0].Commit(ctx, messages.Key{Run: run.Run, Version: version}, 2); err != nil {
			t.Fatal(err)
		}
	}
	restore := func(version uint64, r int) {
		t.Helper()
		if err := ranks[r].Restore(ctx, run, publication(messages.Key{Run: run.Run, Version: version}, r, 2)); err != nil {
			t.Fatal(err)
		}
	}
	publish(1)
	restore(1, 0)
	restore(1, 1)
	if err := s.Restart(); err != nil { // streams in memory are gone
		t.Fatal(err)
	}
	receiver := natstest.Open(t, s, memory())
	publish(2)
	if v, err := receiver.Assemble(natstest.Context(t, 200*time.Millisecond), messages.Key{Run: run.Run, Version: 2}); err == nil {
		t.Fatalf("nothing was missing: %v", v.Manifest.Key)
	}
	restore(2, 0)
	restore(2, 1) // after the other rank has put the record back
	watched, err := receiver.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := <-watched; !ok || a.Key.Version != 2 {
		t.Errorf("announced %s, %v", a.Key, ok)
	}
	if _, err := receiver.Assemble(ctx, messages.Key{Run: run.Run, Version: 2}); err != nil {
		t.Error(err)
	}
}

// TestFullStream: when the stream is full, publishing fails with the server's word, and not with a wait that ended.
func TestFullStream(t *testing.T) {
	t.Parallel()
	cfg := memory()
	cfg.MaxBytes = 3 << 20
	c := natstest.Open(t, natstest.Start(t, natsd.Options{}), cfg)
	run := takeRun(t, c, "job", 1)
	for v := uint64(1); ; v++ {
		p := wide(messages.Key{Run: run.Run, Version: v}, 0, 1, 50_000)
		ctx := natstest.Context(t, 30*time.Second)
		err := c.Publish(ctx, p)
		if err == nil && v < 10 {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "maximum bytes exceeded") || errors.Is(err, messages.ErrUnavailable) || ctx.Err() != nil {
			t.Errorf("version %d: %v", v, err)
		}
		return
	}
}
