package messages_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// cutter passes one client's writes on to a server, and cuts the connection for ever
// after a number of them: what is under way is stored, its answer is lost, and nothing
// follows. To the server that is a process which was killed at that step.
type cutter struct {
	listener net.Listener
	work     sync.WaitGroup
	cut      chan struct{} // closed when the connection was cut
}

func startCutter(t *testing.T, url string, after int) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cutter{listener: l, cut: make(chan struct{})}
	p.work.Go(func() {
		in, err := l.Accept()
		_ = l.Close() // there is no second life
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
		if err != nil {
			t.Error(err)
			_ = in.Close() // the client sees it
			return
		}
		p.work.Go(func() {
			_, _ = io.Copy(in, out) // ends with the connection
			_ = in.Close()
		})
		defer func() { _ = out.Close() }()
		buf := make([]byte, 256<<10)
		for range after {
			n, err := in.Read(buf)
			if err != nil {
				return // the client went by itself
			}
			if _, err := out.Write(buf[:n]); err != nil {
				return
			}
		}
		close(p.cut)
		_ = in.Close()
	})
	t.Cleanup(func() {
		_ = l.Close() // ends Accept, if nobody came
		p.work.Wait()
	})
	return p
}

// dies runs a life over a connection that is cut at a step. It returns whether the
// life was over before. A life may fail only of its death.
func dies(t *testing.T, url string, step int, cfg messages.Config, life func(context.Context, *messages.Control) error) (lived bool) {
	t.Helper()
	p := startCutter(t, url, step)
	ctx, kill := context.WithTimeout(t.Context(), 90*time.Second)
	defer kill()
	nc, err := messages.Dial("nats://"+p.listener.Addr().String(), messages.DialConfig{Name: fmt.Sprint("step ", step)})
	if err != nil {
		return false // it died before it was connected
	}
	stop := context.AfterFunc(ctx, nc.Close)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-p.cut:
			kill() // and with it the connection: a dead process does not dial again
		case <-ctx.Done():
		}
	}()
	if c, err := messages.Open(ctx, nc, cfg); err == nil {
		err = life(ctx, c)
		select {
		case <-p.cut:
		default:
			lived = true
		}
		if lived && err != nil || !ownDeath(err) {
			t.Errorf("step %d: %v", step, err)
		}
		_ = c.Close() // always nil
	}
	kill()
	<-ended
	nc.Close()
	return lived
}

// ownDeath says whether an error only tells that the process died.
func ownDeath(err error) bool {
	return err == nil || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, messages.ErrUnavailable) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, messages.ErrLeaseLost)
}

// TestPublisherDiesAtEachStep kills a publisher after each message that it sends, from
// taking its run to retiring a version. Whatever step it was: no version is torn, one
// that was committed stays, and the rank's next life goes on.
func TestPublisherDiesAtEachStep(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	ctx := natstest.Context(t, 2*time.Minute)
	for step := 1; ; step++ {
		if step > 200 {
			t.Fatal("a life has more than 200 steps")
		}
		// A model for each life, so that none finds what another has left.
		cfg := memory()
		cfg.Model = fmt.Sprintf("model-%d", step)
		heir := natstest.Open(t, s, cfg)
		const job = "job"
		var run uint64 // as far as the dead one came to know it
		lived := dies(t, s.URL(), step, cfg, func(ctx context.Context, c *messages.Control) error {
			r, err := c.TakeRun(ctx, job, 1)
			run = r.Run
			for v := uint64(1); v <= 2 && err == nil; v++ {
				key := messages.Key{Run: r.Run, Version: v}
				if err = c.Publish(ctx, publication(key, 0, 1)); err == nil {
					_, err = c.Commit(ctx, key, 1)
				}
			}
			if err == nil {
				err = c.Retire(ctx, messages.Key{Run: r.Run, Version: 1}, 0)
			}
			return err
		})
		again, err := heir.TakeRun(ctx, job, 1)
		if err != nil || run != 0 && again.Run != run {
			t.Fatalf("step %d: the next life gets run %d, the last had %d: %v", step, again.Run, run, err)
		}
		inherit(ctx, t, heir, step, again.Run)
		if lived {
			t.Logf("a publisher's life has %d steps", step)
			return
		}
	}
}

// inherit is the next life of a rank: what is committed can be read, what is not is
// finished or abandoned, and the next version is committed.
func inherit(ctx context.Context, t *testing.T, c *messages.Control, step int, run uint64) {
	t.Helper()
	if key, ok, err := c.Newest(ctx); err != nil {
		t.Fatalf("step %d: %v", step, err)
	} else if ok && key.Run == run {
		v, err := c.Assemble(ctx, key)
		if err != nil || len(v.Ranks) != 1 || v.Ranks[0].Tiles.Digests[0] != key.Version<<8 {
			t.Errorf("step %d: version %s is torn: %v", step, key, err)
		}
	}
	for v := uint64(1); v <= 3; v++ {
		key := messages.Key{Run: run, Version: v}
		p := publication(key, 0, 1)
		p.Endpoint.Incarnation = "life-2"
		err := c.Publish(ctx, p)
		if err == nil {
			_, err = c.Commit(ctx, key, 1)
		}
		switch {
		case err == nil, errors.Is(err, messages.ErrRetired):
		case errors.Is(err, messages.ErrConflict) && v < 3:
			// The dead life's table is there: its version stands, or never will.
			if err := c.Abandon(ctx, key, "its publisher died"); err != nil && !errors.Is(err, messages.ErrConflict) {
				t.Errorf("step %d: %v", step, err)
			}
		default:
			t.Errorf("step %d: version %s of the next life: %v", step, key, err)
		}
		if err := c.Retire(ctx, key, 0); err != nil {
			t.Errorf("step %d: retire %s: %v", step, key, err)
		}
	}
}

// TestReceiverDiesAtEachStep kills a receiver after each message that it sends, from
// its lease to its release: the publisher gets its buffer back within the lease's life.
func TestReceiverDiesAtEachStep(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	cfg := memory()
	cfg.LeaseTTL = 5 * time.Second
	c := natstest.Open(t, s, cfg)
	run := takeRun(t, c, "job", 1).Run
	const most = 40 // steps of a life; it has half as many
	var wg sync.WaitGroup
	var mu sync.Mutex
	steps := most
	for step := 1; step <= most; step++ {
		key := messages.Key{Run: run, Version: uint64(step)}
		publishAll(t, c, key, 1)
		wg.Go(func() {
			if dies(t, s.URL(), step, cfg, func(ctx context.Context, rx *messages.Control) error { return read(ctx, rx, key, step) }) {
				mu.Lock()
				steps = min(steps, step)
				mu.Unlock()
			}
			began := time.Now()
			if err := c.Retire(natstest.Context(t, 90*time.Second), key, 0); err != nil {
				t.Errorf("step %d: %v", step, err)
			}
			if took := time.Since(began); took > cfg.LeaseTTL+10*time.Second { // much more than TTL and a second only on a busy machine
				t.Errorf("step %d: the buffer was free after %v, the lease lives %v", step, took, cfg.LeaseTTL)
			}
		})
	}
	wg.Wait()
	if steps == most {
		t.Errorf("no receiver lived to its end in %d steps", most)
	}
	t.Logf("a receiver's life has %d steps", steps)
}

// read is a receiver's life with one version.
func read(ctx context.Context, rx *messages.Control, key messages.Key, step int) error {
	name := fmt.Sprintf("rx-%d", step)
	lease, err := rx.AcquireLease(ctx, key, name)
	if err == nil {
		if _, err = rx.Assemble(ctx, key); err == nil {
			err = lease.Confirm(ctx)
		}
		if err == nil {
			err = rx.PutStatus(ctx, name, messages.Status{Role: messages.RoleReceiver, Serving: key})
		}
		if err == nil {
			err = lease.Release(ctx)
		}
	}
	return err
}
