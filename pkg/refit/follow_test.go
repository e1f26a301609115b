package refit

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// eventually polls what other processes can see until it holds; the wait is bounded by the test's context.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// follow runs Follow until the test ends, or stop is called.
func (w *world) follow(r *Receiver) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Follow(ctx); err != nil {
			w.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	w.t.Cleanup(stop)
	return stop
}

func (w *world) status(name string) (found messages.Status) {
	w.t.Helper()
	all, err := w.control.Statuses(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			found = s
		}
	}
	return found
}

func TestFollowServesEachNewestVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	stop := w.follow(r) // before anything is published
	for v := uint64(1); v <= 3; v++ {
		key := w.publish(v)
		w.eventually("served", func() bool { return r.Serving() == key })
		w.serves(r, v)
		w.eventually("status", func() bool { return w.status("receiver").Serving == key })
	}
	stop()
	w.serves(r, 3)
}

func TestALateReceiverTakesTheNewest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	w.publish(1)
	w.publish(2)
	w.publish(3)
	r := w.receiver(nil)
	w.follow(r)
	w.eventually("served", func() bool { return r.Serving().Version == 3 })
	w.serves(r, 3)
}

func TestFollowTriesAgainWhatCanBeMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.faulty(rdmatest.Fault{Kind: rdmatest.Reset, Rank: 0, Count: 4})
	w.follow(r)
	w.publish(1)
	w.eventually("served", func() bool { return r.Serving().Version == 1 })
	w.serves(r, 1)
	if f := w.status("receiver").Failure; f == nil || f.Class != string(SourceLost) || f.Key.Version != 1 {
		t.Errorf("the status does not tell of the failure: %+v", f)
	}
}

func TestFollowGoesOnAfterAVersionThatCannotBeServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	refuse := true
	r := w.receiver(func(c *ReceiverConfig) {
		c.Installer = InstallerFunc(func(_ context.Context, in Installation) (Report, error) {
			if refuse {
				refuse = false
				return Report{}, errors.New("no")
			}
			return Report{}, nil
		})
	})
	w.follow(r)
	w.publish(1)
	w.eventually("refused", func() bool { f := w.status("receiver").Failure; return f != nil && f.Class == string(InstallRefused) })
	w.publish(2)
	w.eventually("served", func() bool { return r.Serving().Version == 2 })
	w.serves(r, 2)
}

func TestRollbackIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	w.follow(r)
	one := w.publish(1)
	w.eventually("served", func() bool { return r.Serving() == one })
	two := w.publish(2)
	w.eventually("served", func() bool { return r.Serving() == two })
	if _, err := w.control.Rollback(w.ctx, one, "a test", "to see"); err != nil {
		t.Fatal(err)
	}
	w.eventually("rolled back", func() bool { return r.Serving() == one })
	w.serves(r, 1)
}

// TestAnEmptiedMessageServerIsNamed: its runs begin anew, and what it has is older by name than what serves.
func TestAnEmptiedMessageServerIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	w.follow(r)
	nine := w.publish(9)
	w.eventually("served", func() bool { return r.Serving() == nine })
	js, err := jetstream.New(natstest.Connect(t, w.server))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(w.ctx, "REFIT_"+w.cfg.Token)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(w.ctx); err != nil {
		t.Fatal(err)
	}
	run, err := w.control.TakeRun(w.ctx, "another job", 1)
	if err != nil {
		t.Fatal(err)
	}
	three := messages.Key{Run: run.Run, Version: 3}
	if err := w.control.Publish(w.ctx, messages.Publication{
		Key: three, World: 1,
		Layout: &messages.Layout{
			Regions: []int64{16}, Names: []string{"x"}, DTypes: []messages.DType{messages.U8}, ShapeEnd: []uint32{1}, Shapes: []int64{16},
			Source: []uint32{0}, Region: []uint32{0}, Offset: []int64{0}, Box: []int64{0, 16},
		},
		Endpoint: &messages.Endpoint{Host: "h", Incarnation: "i", Regions: []messages.EndpointRegion{{Base: 4096, Nbytes: 16}}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.control.Commit(w.ctx, three, 1); err != nil {
		t.Fatal(err)
	}
	w.eventually("named in the status", func() bool {
		f := r.Status().Failure
		return f != nil && f.Class == string(Backwards) && f.Key == three && strings.Contains(f.Text, "refitctl rollback 1.3")
	})
	if r.Serving() != nine {
		t.Errorf("serves %s", r.Serving())
	}
}

// TestALostLeaseEndsTheStage takes the lease away while bytes are read.
func TestALostLeaseEndsTheStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2, cfg: messages.Config{LeaseTTL: 2 * time.Second}})
	reading := make(chan struct{}, 8)
	r := w.faulty(rdmatest.Fault{Kind: rdmatest.Stall, Rank: 0, Injected: func(int, rdma.Segment, int64) { reading <- struct{}{} }})
	key := w.publish(1)
	result := make(chan error, 1)
	go func() {
		_, err := r.Stage(w.ctx, key)
		result <- err
	}()
	<-reading
	js, err := jetstream.New(natstest.Connect(t, w.server))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(w.ctx, "refit_lease_"+w.cfg.Token)
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Purge(w.ctx, key.String()+".receiver"); err != nil {
		t.Fatal(err)
	}
	if err := <-result; ClassOf(err) != LeaseLost {
		t.Fatalf("class %s: %v", ClassOf(err), err)
	}
	w.servesNothing(r)
}

// TestABufferIsNotReusedUnderAReader holds a lease on version 1 and sees that the memory for version 3 is not handed out.
func TestABufferIsNotReusedUnderAReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	key := w.publish(1)
	w.publish(2)
	lease, err := w.control.AcquireLease(w.ctx, key, "reader")
	if err != nil {
		t.Fatal(err)
	}
	handed := make(chan error, 1)
	go func() {
		_, err := w.ranks[0].Memory(w.ctx, 3)
		handed <- err
	}()
	w.eventually("retiring", func() bool { return w.status("publisher-0").Slots[1].State == "retiring" })
	select {
	case err := <-handed:
		t.Fatalf("the buffer was handed out under a lease: %v", err)
	default:
	}
	if err := lease.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-handed; err != nil {
		t.Fatal(err)
	}
}

func TestManyRefitsLeaveMemoryAndDescriptorsFlat(t *testing.T) {
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	for v := uint64(1); v <= 5; v++ {
		w.refit(r, w.publish(v))
	}
	files, goroutines := descriptors(t), runtime.NumGoroutine()
	for v := uint64(6); v <= 60; v++ {
		w.refit(r, w.publish(v))
	}
	w.serves(r, 60)
	if now := descriptors(t); now > files {
		t.Errorf("%d descriptors after 60 refits, %d after 5", now, files)
	}
	w.eventually("goroutines flat", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := r.staging.quarantined(); n != 0 {
		t.Errorf("%d staging slots quarantined", n)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestExactReplayTakesEveryVersionInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	for _, p := range w.ranks {
		p.cfg.Keep = messages.Keep{Every: true, Readers: []string{"receiver"}}
	}
	var mu sync.Mutex
	var installed []uint64
	refused := false
	r := w.receiver(func(c *ReceiverConfig) {
		c.Every = true
		c.Installer = InstallerFunc(func(_ context.Context, in Installation) (Report, error) {
			mu.Lock()
			defer mu.Unlock()
			if in.Key.Version == 3 && !refused {
				refused = true
				return Report{}, Unreachable(errors.New("once"))
			}
			installed = append(installed, in.Key.Version)
			return Report{}, nil
		})
	})
	stop := w.follow(r)
	for v := uint64(1); v <= 5; v++ { // each waits until the receiver is through with the last but one
		w.publish(v)
	}
	w.eventually("version 5 serves", func() bool { return r.Serving().Version == 5 })
	stop()
	mu.Lock()
	defer mu.Unlock()
	if want := []uint64{1, 2, 3, 4, 5}; !slices.Equal(installed, want) {
		t.Errorf("installed %v, want %v", installed, want)
	}
}

// TestExactReplayObeysAnOrderToGoBack while one version is tried again and again, and another waits behind it.
func TestExactReplayObeysAnOrderToGoBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1, slots: 4})
	r := w.receiver(func(c *ReceiverConfig) {
		c.Every = true
		c.Installer = InstallerFunc(func(_ context.Context, in Installation) (Report, error) {
			if in.Key.Version == 3 {
				return Report{}, Unreachable(errors.New("nobody is at home"))
			}
			return Report{}, nil
		})
	})
	w.follow(r)
	var keys []messages.Key
	for v := uint64(1); v <= 4; v++ {
		keys = append(keys, w.publish(v))
	}
	w.eventually("refused", func() bool { f := r.Status().Failure; return f != nil && f.Key == keys[2] })
	w.serves(r, 2)
	if _, err := w.control.Rollback(w.ctx, keys[0], "a test", "version 2 is bad"); err != nil {
		t.Fatal(err)
	}
	w.eventually("rolled back", func() bool { return r.Serving() == keys[0] })
	w.serves(r, 1)
	if skipped := r.Status().Skipped; !slices.Equal(skipped, keys[3:]) { // it waited behind version 3
		t.Errorf("skipped: %v, want %v", skipped, keys[3:])
	}
	key := w.publish(5)
	w.eventually("served", func() bool { return r.Serving() == key })
}
