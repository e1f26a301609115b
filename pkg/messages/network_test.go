package messages_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// proxy passes TCP connections on, until it is told to hold everything back.
type proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu   sync.Mutex
	held chan struct{} // not nil: bytes wait until it is closed
	all  []net.Conn
}

func startProxy(t *testing.T, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: strings.TrimPrefix(url, "nats://")}
	p.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.target)
			if err != nil {
				_ = in.Close() // the client sees it
				continue
			}
			p.mu.Lock()
			p.all = append(p.all, in, out)
			p.mu.Unlock()
			p.work.Go(func() { p.pass(in, out) })
			p.work.Go(func() { p.pass(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends the loop
		p.heal()
		p.mu.Lock()
		for _, c := range p.all {
			_ = c.Close() // some are closed already
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func (p *proxy) pass(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held != nil {
			<-held
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *proxy) partition() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// TestPartitionedReceiverGivesUp: a receiver that can't reach the servers ends its lease
// by its own clock, before the publisher may free the bytes; afterwards it goes on.
func TestPartitionedReceiverGivesUp(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	key := messages.Key{Run: takeRun(t, c, "job", 1).Run, Version: 1}
	publishAll(t, c, key, 1)
	p := startProxy(t, s.URL())
	nc, err := messages.Dial("nats://"+p.listener.Addr().String(), messages.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx := natstest.Context(t, 90*time.Second)
	rx, err := messages.Open(ctx, nc, memory())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rx.Close() }) // always nil
	lease, err := rx.AcquireLease(ctx, key, "far-away")
	if err != nil {
		t.Fatal(err)
	}
	p.partition()
	freed := make(chan error, 1)
	go func() { freed <- c.Retire(ctx, key, 0) }()
	select {
	case <-lease.Lost():
	case err := <-freed:
		t.Fatalf("freed (%v) while the receiver believes in its lease: %v", err, lease.Valid())
	}
	if lease.Valid() || !errors.Is(lease.Err(), messages.ErrLeaseLost) {
		t.Errorf("the lease is lost, but valid is %v and its error %v", lease.Valid(), lease.Err())
	}
	if err := <-freed; err != nil {
		t.Fatal(err)
	}
	p.heal()
	next := messages.Key{Run: key.Run, Version: 2}
	publishAll(t, c, next, 1)
	again, err := rx.AcquireLease(ctx, next, "far-away")
	if err != nil {
		t.Fatalf("after the partition: %v", err)
	}
	if err := again.Release(ctx); err != nil {
		t.Error(err)
	}
}

// TestReconnectStorm: 200 receivers lose their server at once; all of them see the
// version that is committed right after it is back.
// It runs alone: the machine is busy enough.
func TestReconnectStorm(t *testing.T) {
	receivers := 200
	if testing.Short() {
		receivers = 40
	}
	s := natstest.Start(t, natsd.Options{SyncAlways: true})
	cfg := memory()
	cfg.Memory, cfg.Poll = false, 2*time.Second
	c := natstest.Open(t, s, cfg)
	run := takeRun(t, c, "job", 1)
	first, second := messages.Key{Run: run.Run, Version: 1}, messages.Key{Run: run.Run, Version: 2}
	publishAll(t, c, first, 1)
	ctx := natstest.Context(t, 3*time.Minute)
	watches := make([]<-chan messages.Announcement, receivers)
	for i := range watches {
		rx, err := messages.Open(ctx, natstest.Connect(t, s), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rx.Close() }) // always nil
		if watches[i], err = rx.Watch(ctx); err != nil {
			t.Fatal(err)
		}
		if a := <-watches[i]; a.Key != first {
			t.Fatalf("receiver %d was told of %s", i, a.Key)
		}
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	publishAll(t, c, second, 1)
	began := time.Now()
	for i, w := range watches {
		if a, ok := <-w; !ok || a.Key != second {
			t.Fatalf("receiver %d was told of %s, %v", i, a.Key, ok)
		}
	}
	t.Logf("all %d receivers knew of the new version %v after its commit", receivers, time.Since(began).Round(time.Millisecond))
}
