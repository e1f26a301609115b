package refit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

// gateWorld is a gate over two slots with a clock and a server of the test's.
type gateWorld struct {
	gate
	clock  time.Time
	slots  []messages.Key
	leases map[messages.Key][]string
	asked  int
	down   error
}

func newGateWorld() *gateWorld {
	w := &gateWorld{clock: time.Unix(1000, 0), slots: []messages.Key{{Run: 1, Version: 1}, {}}, leases: map[messages.Key][]string{}}
	w.gate = gate{
		now: func() time.Time { return w.clock }, pause: func(d time.Duration) { w.clock = w.clock.Add(max(0, d)) }, log: slog.New(slog.DiscardHandler),
		keys: func() []messages.Key { return slices.Clone(w.slots) },
		slot: func(region uint32) int { return slices.Index([]uint32{10, 11}, region) },
		holders: func(_ context.Context, key messages.Key) ([]string, error) {
			w.asked++
			return w.leases[key], w.down
		},
	}
	return w
}

func TestGateAsksSeldomAndForgetsWhatIsDrained(t *testing.T) {
	t.Parallel()
	w := newGateWorld()
	first := w.slots[0]
	admitted := func(reader string, want bool, asked int, regions ...uint32) {
		t.Helper()
		err := w.admit(reader, regions)
		if (err == nil) != want || err != nil && !errors.Is(err, errNoLease) || w.asked != asked {
			t.Errorf("reader %s, regions %v: %v, %d questions, want %d", reader, regions, err, w.asked, asked)
		}
		w.asked = 0
	}
	w.leases[first] = []string{"a"}
	admitted("a", true, 1)         // at the connect
	admitted("a", true, 0, 10, 10) // known
	admitted("b", false, 1, 10)    // a no is never older than the question
	w.leases[first] = []string{"a", "b"}
	admitted("b", true, 1, 10)  // came since
	admitted("a", false, 0, 11) // nothing lies there
	admitted("a", false, 0, 12) // nobody's region
	w.leases[first] = nil       // released
	admitted("a", true, 0, 10)  // the bytes stay while the slot holds the version
	w.clock = w.clock.Add(gateFresh)
	admitted("a", false, 1, 10)
	w.leases[first] = []string{"a"}
	admitted("a", true, 1, 10)
	w.slots[0] = messages.Key{} // drained
	admitted("a", false, 0, 10)
	admitted("a", false, 0)
	if len(w.known) != 0 {
		t.Errorf("%d versions are remembered", len(w.known))
	}
}

// Without an answer nobody can take a slot back either: readers go on.
func TestGateAdmitsWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	w := newGateWorld()
	w.down = messages.ErrUnavailable
	if err := w.admit("a", []uint32{10}); err != nil {
		t.Error(err)
	}
	w.slots[0] = messages.Key{}
	if err := w.admit("a", []uint32{10}); !errors.Is(err, errNoLease) {
		t.Errorf("a slot that holds nothing: %v", err)
	}
}

// tcpRank makes the world's only rank, which serves by tcp.
func (w *world) tcpRank() *Publisher {
	w.t.Helper()
	l := layout(0, 1, false)
	tr, err := tcp.New(tcp.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		w.t.Fatal(err)
	}
	slots := []*rdma.Memory{rdmatest.Alloc(w.t, l.Regions[0], 0), rdmatest.Alloc(w.t, l.Regions[0], 0)}
	p, err := NewPublisher(w.ctx, PublisherConfig{
		Model: w.cfg.Model, Incarnation: tr.Incarnation(), World: 1, Job: "job", Control: w.control,
		Transports: []rdma.Transport{tr}, Slots: slots, Layout: l, CommitTimeout: patience, DrainTimeout: patience,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := errors.Join(p.Close(), tr.Close()); err != nil {
			w.t.Error(err)
		}
	})
	w.ranks = append(w.ranks, p)
	return p
}

// readAs reads the first bytes of a version's region over tcp, as a receiver of some name.
func (w *world) readAs(name string, key messages.Key) (rdma.Peer, func() error) {
	w.t.Helper()
	v, err := w.control.Assemble(w.ctx, key)
	if err != nil {
		w.t.Fatal(err)
	}
	tr, err := tcp.New(tcp.Config{Conns: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = tr.Close() })
	o := offer(0, v.Ranks[0].Endpoint)
	o.Lease = name
	peer, _, err := rdma.Connect(w.ctx, []rdma.Transport{tr}, o)
	if err != nil {
		return nil, func() error { return err }
	}
	dst := rdmatest.Alloc(w.t, 64, 1)
	w.t.Cleanup(func() { _ = peer.Close() })
	return peer, func() error {
		return rdmatest.Read(peer, dst, []rdma.Segment{rdma.Contiguous(v.Ranks[0].Table.Regions[0], 0, 0, 64)})
	}
}

// A capability alone reads nothing: it takes a live lease on the very version, until that is drained.
func TestOnlyHoldersOfALeaseRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	p := w.tcpRank()
	one, two := w.publish(1), w.publish(2)
	refused := func(what string, err error, text string) {
		t.Helper()
		if rdma.KindOf(err) != rdma.ErrRefused || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want a refusal that says %q", what, err, text)
		}
	}
	_, read := w.readAs("nobody", one)
	refused("without a lease", read(), `no live lease of receiver "nobody" on any version`)

	lease, err := w.control.AcquireLease(w.ctx, one, "reader")
	if err != nil {
		t.Fatal(err)
	}
	_, read = w.readAs("reader", one)
	if err := read(); err != nil {
		t.Fatal(err)
	}
	_, other := w.readAs("reader", two)
	refused("a version without a lease on it", other(), `no live lease of receiver "reader" on version `+two.String())

	if err := lease.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Retire(w.ctx, 1); err != nil {
		t.Fatal(err)
	}
	refused("a version that was drained", read(), "holds no version")

	r := w.receiver(func(c *ReceiverConfig) {
		tr, err := tcp.New(tcp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c.Transports = []rdma.Transport{tr}
	})
	w.refit(r, two)
	w.serves(r, 2)
}
