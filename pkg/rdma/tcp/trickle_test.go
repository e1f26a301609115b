package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

const trickleStall = 300 * time.Millisecond

// A server that sends a byte now and then makes progress, and would hold the read for ever.
func TestTricklingServerIsGivenUp(t *testing.T) {
	t.Parallel()
	remote := liar(t, func(c net.Conn, q *request) {
		_, _ = c.Write(header{id: q.id, nbytes: 1 << 20}.append(nil))
		tick := time.NewTicker(trickleStall / 6)
		defer tick.Stop()
		for range tick.C {
			if _, err := c.Write(make([]byte, 16)); err != nil {
				return
			}
		}
	})
	r := open(t, Config{Stall: trickleStall, Conns: 1})
	dst := rdmatest.Alloc(t, 1<<20, 1)
	p := rdmatest.Connect(t, r, remote)
	if err := rdmatest.Read(p, dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 1<<20)}); !errors.Is(err, rdma.ErrTimeout) {
		t.Errorf("%v, want %v", err, rdma.ErrTimeout)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A slow server that moves enough in each stall's time is not given up, however long the whole takes.
func TestSlowServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	const nbytes, steps = 6 * leastMoved, 12
	remote := liar(t, func(c net.Conn, q *request) {
		_, _ = c.Write(header{id: q.id, nbytes: nbytes}.append(nil))
		tick := time.NewTicker(trickleStall / 4)
		defer tick.Stop()
		for range steps { // three stalls' time in all
			<-tick.C
			if _, err := c.Write(make([]byte, nbytes/steps)); err != nil {
				return
			}
		}
		_, _ = c.Write(appendTrailer(nil, statusOK, q.id))
	})
	r := open(t, Config{Stall: trickleStall, Conns: 1})
	dst := rdmatest.Alloc(t, nbytes, 1)
	p := rdmatest.Connect(t, r, remote)
	if err := rdmatest.Read(p, dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, nbytes)}); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A reader that takes a little now and then holds a connection and the region's memory: it is hung up on, whether the bytes
// leave by write or by sendfile.
func TestTricklingReaderIsHungUpOn(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]string{"write": "127.0.0.1:0", "sendfile": ownAddress(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, _, _ := served(t, func(c *Config) {
				if c.Listen != "" {
					c.Listen, c.Stall = listen, trickleStall
				}
			})
			c := prove(t, s)
			ask(t, c, 1, append(append(append(all, all...), all...), all...)) // more than sockets hold
			connected := func() bool {
				s.server.mu.Lock()
				defer s.server.mu.Unlock()
				return len(s.server.conns) > 0
			}
			tick := time.NewTicker(trickleStall / 10)
			defer tick.Stop()
			b := make([]byte, 512)
			for begun := time.Now(); connected(); <-tick.C {
				if _, err := io.ReadFull(c, b); err != nil {
					t.Fatalf("what was sent is lost: %v", err)
				}
				if took := time.Since(begun); took > rdmatest.Deadline {
					t.Fatalf("still connected after %v", took)
				}
			}
		})
	}
}

// ask sends a request.
func ask(t *testing.T, c net.Conn, id uint64, segs []rdma.Segment) {
	t.Helper()
	b := appendRequest(make([]byte, 4), id, segs)
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}
