package refit

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// cutOff is a transport of which the first read on each connection ends by its deadline, and the others when the
// connection is closed.
type cutOff struct{ rdma.Transport }

func (c *cutOff) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	p, err := c.Transport.Connect(ctx, r)
	if err != nil {
		return nil, err
	}
	return &cutOffPeer{Peer: p, closed: make(chan struct{})}, nil
}

type cutOffPeer struct {
	rdma.Peer
	reads  atomic.Int64
	closed chan struct{}
}

func (p *cutOffPeer) Read(*rdma.Memory, []rdma.Segment) (rdma.Transfer, error) {
	return &cutOffTransfer{p: p, first: p.reads.Add(1) == 1}, nil
}

func (p *cutOffPeer) Close() error {
	close(p.closed)
	return p.Peer.Close()
}

type cutOffTransfer struct {
	p     *cutOffPeer
	first bool
}

func (t *cutOffTransfer) Abort() {}

func (t *cutOffTransfer) Wait(ctx context.Context) error {
	kind := rdma.ErrTimeout
	if !t.first {
		kind = rdma.ErrAborted
		select {
		case <-t.p.closed:
		case <-ctx.Done():
		}
	}
	return &rdma.Error{Kind: kind, Op: "read", Transport: "cut off", Rank: 0}
}

// TestAReadThatIsCutOffByAnothersEndSaysWhy has two lanes read from a rank. One finds that the rank does not answer and
// drops the connection; the other one's read ends with it, and must not take that for another kind of failure.
func TestAReadThatIsCutOffByAnothersEndSaysWhy(t *testing.T) {
	t.Parallel()
	w := newBig(t, 64<<20, plan.BF16)
	r := w.receiver(func(c *ReceiverConfig) {
		c.Dests, c.Lanes, c.Stall = []plan.Dest{w.dest}, 4, 2*time.Second
		c.Transports[0] = &cutOff{c.Transports[0]}
	})
	err := w.fails(r, w.commit(1), Deadline)
	if !errors.Is(err, rdma.ErrTimeout) {
		t.Errorf("the error does not tell of the deadline: %v", err)
	}
}
