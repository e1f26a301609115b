package refit

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// endless is a transport whose first reads end by ErrQuarantined: their destination stays held, and is written to when
// the test says so.
type endless struct {
	rdma.Transport
	count int // reads that never end

	mu   sync.Mutex
	held []heldRead
}

type heldRead struct {
	dst     *rdma.Memory
	release func()
}

func (e *endless) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	p, err := e.Transport.Connect(ctx, r)
	if err != nil {
		return nil, err
	}
	return &endlessPeer{p, e}, nil
}

type endlessPeer struct {
	rdma.Peer
	e *endless
}

func (p *endlessPeer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if len(p.e.held) == p.e.count {
		return p.Peer.Read(dst, segs)
	}
	release, err := dst.Hold()
	if err != nil {
		return nil, err
	}
	p.e.held = append(p.e.held, heldRead{dst, release})
	return quarantinedTransfer{}, nil
}

type quarantinedTransfer struct{}

func (quarantinedTransfer) Abort() {}

func (quarantinedTransfer) Wait(context.Context) error {
	return &rdma.Error{Kind: rdma.ErrQuarantined, Op: "read", Transport: "endless", Rank: 0}
}

// write has the transfers that never ended write to where they may, and then end.
func (e *endless) write() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.held {
		b := h.dst.Bytes()
		for i := range b {
			b[i] = 0xee
		}
		h.release()
	}
}

func TestMemoryOfATransferThatNeverEndedIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	for name, dests := range map[string][]plan.Dest{
		"arena":   {destination(0), destination(1)},
		"staging": {cast()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{ranks: 1})
			e := &endless{count: 1}
			r := w.receiver(func(c *ReceiverConfig) {
				c.Dests = dests
				e.Transport, c.Transports[0] = c.Transports[0], e
			})
			err := w.fails(r, w.publish(1), SourceLost)
			if !errors.Is(err, errNeverEnded) || !errors.Is(err, rdma.ErrQuarantined) {
				t.Errorf("the error does not tell why: %v", err)
			}
			s, err := r.Stage(w.ctx, w.ranks[0].Key(1))
			if err != nil {
				t.Fatal(err)
			}
			e.write()
			if err := r.Apply(w.ctx, s); err != nil {
				t.Fatal(err)
			}
			if name == "arena" {
				w.serves(r, 1)
			}
			if n := r.staging.quarantined(); n != 0 {
				t.Errorf("%d slots are quarantined although their transfers have ended", n)
			}
		})
	}
}

// cast is a destination all of whose bytes pass through staging.
func cast() plan.Dest {
	d := destination(0)
	return plan.Dest{
		Params: []plan.Param{d.Params[2]},
		Copies: []plan.Copy{{Source: "norm", Shape: []int64{37}, Stride: []int64{1}}},
	}
}
