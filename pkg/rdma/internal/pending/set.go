package pending

import "sync"

// Set is the live transfers of one peer. The zero value is empty and open.
type Set struct {
	mu     sync.Mutex
	closed bool
	live   map[*Transfer]struct{}
}

// Add begins to follow t until its terminal state; false, and nothing, once the set is closed.
func (s *Set) Add(t *Transfer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.live == nil {
		s.live = map[*Transfer]struct{}{}
	}
	s.live[t] = struct{}{}
	t.onFinish = func() { s.drop(t) }
	return true
}

// Closed says whether CloseAll was called.
func (s *Set) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Set) drop(t *Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, t)
}

// CloseAll refuses new transfers, aborts those that live and returns them; the caller waits for their ends.
func (s *Set) CloseAll() []*Transfer {
	s.mu.Lock()
	s.closed = true
	out := make([]*Transfer, 0, len(s.live))
	for t := range s.live {
		out = append(out, t)
	}
	s.mu.Unlock()
	for _, t := range out {
		t.Abort()
	}
	return out
}
