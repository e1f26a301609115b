package refit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// ring is the staging memory: equal slots that batches borrow. Together they are the staging budget.
type ring struct {
	slotBytes int64
	free      chan *rdma.Memory

	mu   sync.Mutex
	all  []*rdma.Memory
	lost []*rdma.Memory // quarantined: mapped until the transfers into them have ended, if ever
}

// newRing cuts a budget into slots of slotBytes. They are allocated when first needed.
func newRing(budget, slotBytes int64) *ring {
	n := min(max(1, budget/slotBytes), maxStagingSlots)
	r := &ring{slotBytes: slotBytes, free: make(chan *rdma.Memory, n)}
	for range n {
		r.free <- nil
	}
	return r
}

// acquire borrows a slot. It waits for one until ctx ends.
func (r *ring) acquire(ctx context.Context) (*rdma.Memory, error) {
	select {
	case m := <-r.free:
		if m != nil {
			return m, nil
		}
		return r.allocate()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for staging memory: %w", context.Cause(ctx))
	}
}

func (r *ring) allocate() (*rdma.Memory, error) {
	r.reap()
	m, err := rdma.Alloc(r.slotBytes, rdma.AllocOptions{Backing: rdma.Anonymous})
	if err != nil {
		r.free <- nil
		return nil, as(NoRoom, fmt.Errorf("allocate staging memory: %w", err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, m)
	return m, nil
}

func (r *ring) release(m *rdma.Memory) { r.free <- m }

// quarantine gives the place back without the memory, into which a transfer may still write.
func (r *ring) quarantine(m *rdma.Memory) {
	r.mu.Lock()
	r.lost = append(r.lost, m)
	r.all = slices.DeleteFunc(r.all, func(other *rdma.Memory) bool { return other == m })
	r.mu.Unlock()
	r.free <- nil
}

// reap unmaps what was quarantined and is not written to any more.
func (r *ring) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = slices.DeleteFunc(r.lost, func(m *rdma.Memory) bool { return m.Close() == nil })
}

// quarantined counts the slots that are lost to transfers without an end.
func (r *ring) quarantined() int {
	r.reap()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lost)
}

// close unmaps all but what is quarantined.
func (r *ring) close() error {
	r.reap()
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, m := range r.all {
		errs = append(errs, m.Close())
	}
	r.all = nil
	return errors.Join(errs...)
}
