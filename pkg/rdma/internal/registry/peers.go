package registry

import (
	"errors"
	"sync"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Peers are the live peers of a transport. The zero value is empty and open.
type Peers struct {
	mu     sync.Mutex
	closed bool
	live   map[rdma.Peer]struct{}
}

// Add follows a new peer; false, and nothing, once the transport is closed.
func (s *Peers) Add(p rdma.Peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.live == nil {
		s.live = map[rdma.Peer]struct{}{}
	}
	s.live[p] = struct{}{}
	return true
}

// Forget lets go of a peer that was closed.
func (s *Peers) Forget(p rdma.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, p)
}

// Closed says whether Close was called.
func (s *Peers) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close refuses new peers and closes those that live. First is true for the first call only: the transport's other things
// are closed once.
func (s *Peers) Close() (first bool, err error) {
	s.mu.Lock()
	first = !s.closed
	s.closed = true
	peers := make([]rdma.Peer, 0, len(s.live))
	for p := range s.live {
		peers = append(peers, p)
	}
	s.mu.Unlock()
	var errs []error
	for _, p := range peers {
		errs = append(errs, p.Close())
	}
	return first, errors.Join(errs...)
}
