package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// served is a source with one region and a reader of it.
func served(t *testing.T, edit func(*Config)) (s, r *Transport, remote rdma.Remote, dst *rdma.Memory) {
	t.Helper()
	p := newPair(t, edit)
	m := rdmatest.Alloc(t, 4<<20, 1)
	dst = rdmatest.Alloc(t, 4<<20, 2)
	reg := rdmatest.Register(t, p.Source, m)
	s, r = transportOf(t, p.Source), transportOf(t, p.Reader)
	t.Cleanup(func() { _ = errors.Join(r.Close(), s.Close()) })
	return s, r, rdmatest.RemoteOf(t, p, reg), dst
}

func transportOf(t *testing.T, tr rdma.Transport) *Transport {
	t.Helper()
	own, ok := tr.(*Transport)
	if !ok {
		t.Fatalf("%T", tr)
	}
	return own
}

func closeWrite(c net.Conn) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("%T", c)
	}
	return t.CloseWrite()
}

func dial(t *testing.T, s *Transport) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.server.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(rdmatest.Deadline)); err != nil {
		t.Fatal(err)
	}
	return c
}

// prove makes a connection that the server trusts, to misuse it afterwards.
func prove(t *testing.T, s *Transport) net.Conn {
	t.Helper()
	c := dial(t, s)
	var g [len(magic) + 16]byte
	if _, err := io.ReadFull(c, g[:]); err != nil {
		t.Fatal(err)
	}
	nonce := [16]byte(g[len(magic):])
	h := hello{incarnation: s.cfg.Incarnation}
	h.proof = readerProof(&s.server.access.token, &nonce, &h.nonce, h.incarnation, "")
	if _, err := c.Write(short(h.encode())); err != nil {
		t.Fatal(err)
	}
	b, err := readShort(c)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := decodeWelcome(b); err != nil || w.status != statusOK {
		t.Fatalf("%+v, %v", w, err)
	}
	return c
}

func hangsUp(t *testing.T, what string, c net.Conn) {
	t.Helper()
	if n, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: still connected after %d bytes: %v", what, n, err)
	}
}

func TestServerHangsUpOnNonsense(t *testing.T) {
	t.Parallel()
	s, r, remote, dst := served(t, nil)
	for what, b := range map[string][]byte{
		"long hello":     {0xff, 0xff},
		"garbage hello":  append([]byte{40, 0}, make([]byte, 40)...),
		"http":           []byte("GET / HTTP/1.1\r\n\r\n"),
		"wrong proof":    short((&hello{incarnation: s.cfg.Incarnation}).encode()),
		"other life":     short((&hello{incarnation: "other"}).encode()),
		"nothing at all": nil,
	} {
		c := dial(t, s)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if b == nil {
			if err := closeWrite(c); err != nil {
				t.Fatal(err)
			}
		}
		hangsUp(t, what, c)
	}
	for what, b := range map[string][]byte{
		"long request":      {0xff, 0xff, 0xff, 0x7f},
		"empty request":     {0, 0, 0, 0},
		"too many segments": frame(appendRequest(nil, 1, make([]rdma.Segment, maxSegments+1))),
		"cut segment":       frame([]byte{1, 1, 0}),
		"bytes behind":      frame([]byte{1, 0, 9}),
	} {
		c := prove(t, s)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		hangsUp(t, what, c)
	}
	if err := rdmatest.Read(rdmatest.Connect(t, r, remote), dst, all); err != nil {
		t.Fatalf("an honest reader afterwards: %v", err)
	}
}

var all = []rdma.Segment{rdma.Contiguous(0, 0, 0, 4<<20)}

func frame(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// Readers that ask and don't take, or connect and don't speak, are hung up on, and meanwhile cost the others nothing.
func TestSlowAndVanishedReadersCostTheOthersNothing(t *testing.T) {
	t.Parallel()
	s, r, remote, dst := served(t, func(c *Config) { c.Stall, c.Handshake = 300*time.Millisecond, 300*time.Millisecond })
	slow, silent := prove(t, s), dial(t, s)
	var asked []byte
	for id := range uint64(30) {
		asked = append(asked, frame(appendRequest(nil, id, all))...)
	}
	if _, err := slow.Write(asked); err != nil {
		t.Fatal(err)
	}
	p := rdmatest.Connect(t, r, remote)
	for range 5 {
		if err := rdmatest.Read(p, dst, all); err != nil {
			t.Fatal(err)
		}
	}
	hangsUp(t, "silent", silent)
	left := func() int {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		return len(s.server.conns)
	}
	if !rdmatest.Eventually(func() bool { return left() <= 4 }) { // the honest reader's
		t.Fatalf("%d connections are left", left())
	}
}

// A reader that comes back after a pause, as between two versions, finds its way although the server hung up.
func TestReaderComesBackAfterTheServerHungUp(t *testing.T) {
	t.Parallel()
	s, r, remote, dst := served(t, func(c *Config) { c.Conns, c.Idle = 1, 50*time.Millisecond })
	p := rdmatest.Connect(t, r, remote)
	for range 3 {
		if err := rdmatest.Read(p, dst, all); err != nil {
			t.Fatal(err)
		}
		if !rdmatest.Eventually(func() bool {
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			return len(s.server.conns) == 0
		}) {
			t.Fatal("the server keeps idle connections")
		}
	}
}

func TestGreedyClientIsLimited(t *testing.T) {
	t.Parallel()
	s, r, remote, _ := served(t, func(c *Config) { c.MaxConnsPerClient, c.Conns = 3, 1 })
	for range 3 {
		prove(t, s)
	}
	hangsUp(t, "fourth connection", dial(t, s))
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Deadline)
	defer cancel()
	if p, err := r.Connect(ctx, remote); rdma.KindOf(err) == 0 {
		t.Fatalf("fourth reader: %v, %v", p, err)
	}
}

func TestLeaseIsAskedForAtTheConnectAndAtEachRequest(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	s, r, remote, dst := served(t, func(c *Config) { c.Conns = 1 })
	s.Guard(func(lease string, regions []uint32) error {
		switch {
		case lease != "mine":
			return errors.New("unknown")
		case gone.Load() && len(regions) > 0:
			return fmt.Errorf("no longer on regions %v", regions)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Deadline)
	defer cancel()
	if _, err := r.Connect(ctx, remote); !errors.Is(err, rdma.ErrRefused) || !strings.Contains(err.Error(), "lease") {
		t.Fatalf("without a lease: %v", err)
	}
	remote.Lease = "mine"
	p := rdmatest.Connect(t, r, remote)
	if err := rdmatest.Read(p, dst, all); err != nil {
		t.Fatal(err)
	}
	gone.Store(true)
	if err := rdmatest.Read(p, dst, all); !errors.Is(err, rdma.ErrRefused) || !strings.Contains(err.Error(), "no longer on regions [0]") {
		t.Fatalf("after the lease's end: %v", err)
	}
	gone.Store(false) // the connection was kept: a refusal is of one request
	if err := rdmatest.Read(p, dst, all); err != nil {
		t.Fatal(err)
	}
}

func TestFalseCompletionsAreRefused(t *testing.T) {
	t.Parallel()
	_, r, remote, dst := served(t, func(c *Config) { c.Ceiling = 1000 })
	if err := rdmatest.Read(rdmatest.Connect(t, r, remote), dst, all); !errors.Is(err, rdma.ErrFalseCompletion) {
		t.Fatalf("4 MiB over a fabric of 1 kB/s: %v", err)
	}
}

// liar is a server that speaks the protocol and answers as it is told.
func liar(t *testing.T, answer func(net.Conn, *request)) rdma.Remote {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := access{addresses: []string{ln.Addr().String()}}
	srv := &server{cfg: &Config{Incarnation: "liar"}, access: a}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(rdmatest.Deadline))
			ss := &session{srv: srv, conn: c}
			srv.cfg.Handshake, srv.cfg.Idle, srv.cfg.Stall = time.Minute, time.Minute, time.Minute
			if ss.handshake() == nil && ss.nextFrame() == nil && ss.req.decode(ss.frame) == nil {
				answer(c, &ss.req)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	host, err := rdma.HostID()
	if err != nil {
		t.Fatal(err)
	}
	return rdma.Remote{Host: host, Incarnation: "liar", Regions: []rdma.RemoteRegion{{Nbytes: 4 << 20}}, Access: rdma.Access{Transport: Name, Metadata: a.encode()}}
}

func TestLyingServerIsFoundOut(t *testing.T) {
	t.Parallel()
	respond := func(h header, payload int, tr status, id uint64) func(net.Conn, *request) {
		return func(c net.Conn, q *request) {
			if h.id == 0 {
				h.id = q.id
			}
			if id == 0 {
				id = q.id
			}
			b := append(h.append(nil), make([]byte, payload)...)
			_, _ = c.Write(appendTrailer(b, tr, id))
		}
	}
	for name, c := range map[string]struct {
		answer func(net.Conn, *request)
		want   rdma.Kind
	}{
		"other id":        {respond(header{id: 99, nbytes: 64}, 64, 0, 0), rdma.ErrProtocol},
		"other length":    {respond(header{nbytes: 1 << 40}, 64, 0, 0), rdma.ErrProtocol},
		"unknown status":  {respond(header{status: 9, nbytes: 3}, 3, 0, 0), rdma.ErrProtocol},
		"endless reason":  {respond(header{status: statusRefused, nbytes: 1 << 40}, 64, 0, 0), rdma.ErrProtocol},
		"ends early":      {respond(header{nbytes: 64}, 10, 0, 0), rdma.ErrReset},
		"trailer's id":    {respond(header{nbytes: 64}, 64, 0, 98), rdma.ErrProtocol},
		"withdrawn":       {respond(header{nbytes: 64}, 64, statusRefused, 0), rdma.ErrRefused},
		"says nothing":    {func(c net.Conn, _ *request) { _, _ = io.Copy(io.Discard, c) }, rdma.ErrTimeout},
		"hangs up":        {func(net.Conn, *request) {}, rdma.ErrReset},
		"stale all along": {respond(header{status: statusStale, nbytes: 5}, 5, 0, 0), rdma.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remote := liar(t, c.answer)
			r := open(t, Config{Stall: 200 * time.Millisecond, Conns: 1})
			dst := rdmatest.Alloc(t, 64, 1)
			p := rdmatest.Connect(t, r, remote)
			if err := rdmatest.Read(p, dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 64)}); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whoever took over the port of a dead endpoint doesn't know its capability, or doesn't speak the protocol at all.
func TestPortOfSomebodyElse(t *testing.T) {
	t.Parallel()
	s, r, remote, _ := served(t, nil)
	b := append([]byte(nil), remote.Access.Metadata...)
	b[5] ^= 1 // another token
	forged := remote
	forged.Access.Metadata = b
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Deadline)
	defer cancel()
	if _, err := r.Connect(ctx, forged); !errors.Is(err, rdma.ErrRefused) {
		t.Errorf("wrong capability: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := ln.Accept(); err == nil {
			_, _ = c.Write([]byte("220 mail.example.org ESMTP ready, how do you do?\r\n"))
			_ = c.Close()
		}
	}()
	a := s.server.access
	a.addresses = []string{ln.Addr().String()}
	forged.Access.Metadata = a.encode()
	if _, err := r.Connect(ctx, forged); !errors.Is(err, rdma.ErrUnreachable) {
		t.Errorf("a mail server: %v", err)
	}
	_ = ln.Close()
	<-done
}

// mute accepts connections and never says a word on them, as a process that is stopped does: the kernel accepts for it.
func mute(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String() // nobody calls Accept
}

// TestAbortEndsADial has a reader give up while its connection is being made to a source that has stopped since.
func TestAbortEndsADial(t *testing.T) {
	t.Parallel()
	_, r, remote, dst := served(t, func(c *Config) { c.Conns, c.Handshake = 1, time.Minute })
	p, ok := rdmatest.Connect(t, r, remote).(*peer)
	if !ok {
		t.Fatal("another peer")
	}
	p.lanes[0].hangUp()
	p.dialer.access.addresses = []string{mute(t)}
	for _, begun := range []bool{false, true} {
		tr, err := p.Read(dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 1<<20)})
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(rdmatest.Deadline); begun && !p.lanes[0].isDialing() && time.Now().Before(end); {
			runtime.Gosched()
		}
		tr.Abort()
		ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Deadline)
		defer cancel()
		if err := tr.Wait(ctx); !errors.Is(err, rdma.ErrAborted) {
			t.Errorf("abort of a read whose dial had begun (%t): %v", begun, err)
		}
	}
}

func (l *lane) isDialing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialing != nil
}

func TestPinnedCertificate(t *testing.T) {
	t.Parallel()
	s, r, remote, _ := served(t, func(c *Config) { c.Secure = c.Listen != "" })
	a := s.server.access
	a.pin[0] ^= 1
	remote.Access.Metadata = a.encode()
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Deadline)
	defer cancel()
	if _, err := r.Connect(ctx, remote); !errors.Is(err, rdma.ErrStale) {
		t.Errorf("another certificate: %v", err)
	}
}

func TestLoopbackOfAnotherHostIsNotTried(t *testing.T) {
	t.Parallel()
	_, r, remote, _ := served(t, nil)
	remote.Host = "another"
	if _, err := r.Connect(t.Context(), remote); !errors.Is(err, rdma.ErrUnreachable) || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("got %v", err)
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"port taken by nobody": {Listen: "256.1.1.1:0"},
		"negative":             {Stall: -1},
		"long incarnation":     {Incarnation: strings.Repeat("x", 200)},
		"many addresses":       {Advertise: make([]string, 20)},
	} {
		if tr, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
			_ = tr.Close()
		}
	}
	if _, err := open(t, Config{}).Access(); !errors.Is(err, rdma.ErrUnavailable) {
		t.Errorf("access of a reader: %v", err)
	}
}
