package refit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// deafFirst is a transport whose first connection never ends a read unless it is aborted.
type deafFirst struct {
	rdma.Transport
	mu       sync.Mutex
	connects int
}

func (d *deafFirst) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	p, err := d.Transport.Connect(ctx, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connects++; d.connects > 1 || err != nil {
		return p, err
	}
	return deafPeer{p}, nil
}

type deafPeer struct{ rdma.Peer }

func (deafPeer) Read(*rdma.Memory, []rdma.Segment) (rdma.Transfer, error) {
	return &deafTransfer{aborted: make(chan struct{})}, nil
}

type deafTransfer struct {
	once    sync.Once
	aborted chan struct{}
}

func (t *deafTransfer) Abort() { t.once.Do(func() { close(t.aborted) }) }

func (t *deafTransfer) Wait(ctx context.Context) error {
	select {
	case <-t.aborted:
		return &rdma.Error{Kind: rdma.ErrAborted, Op: "read", Transport: "deaf"}
	case <-ctx.Done():
		return fmt.Errorf("wait: %w", context.Cause(ctx))
	}
}

func TestAStalledConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	r := w.receiver(func(c *ReceiverConfig) {
		c.Transports[0] = &deafFirst{Transport: c.Transports[0]}
		c.Stall = 500 * time.Millisecond
	})
	stats := w.refit(r, w.publish(1))
	w.serves(r, 1)
	if stats.Retries == 0 {
		t.Error("nothing was read again")
	}
}
