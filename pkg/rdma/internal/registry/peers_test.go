package registry

import (
	"errors"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// fakePeer counts its closes and forgets itself, as peers do.
type fakePeer struct {
	of     *Peers
	closes int
	err    error
}

func (*fakePeer) Read(*rdma.Memory, []rdma.Segment) (rdma.Transfer, error) {
	return nil, rdma.ErrClosed
}

func (p *fakePeer) Close() error {
	p.closes++
	p.of.Forget(p)
	return p.err
}

func TestPeersCloseWithTheirTransport(t *testing.T) {
	t.Parallel()
	var s Peers
	gone, left, broken := &fakePeer{of: &s}, &fakePeer{of: &s}, &fakePeer{of: &s, err: errors.New("broken")}
	for _, p := range []*fakePeer{gone, left, broken} {
		if !s.Add(p) {
			t.Fatal("an open transport refuses a peer")
		}
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	first, err := s.Close()
	if !first || !errors.Is(err, broken.err) {
		t.Errorf("first %t, %v", first, err)
	}
	if again, err := s.Close(); again || err != nil {
		t.Errorf("closed again: first %t, %v", again, err)
	}
	if gone.closes != 1 || left.closes != 1 || broken.closes != 1 {
		t.Errorf("closed %d, %d and %d times", gone.closes, left.closes, broken.closes)
	}
	if s.Add(left) || !s.Closed() {
		t.Error("a closed transport takes a peer")
	}
}

func TestHostMemoryOnly(t *testing.T) {
	t.Parallel()
	var g Registry
	device, err := rdma.ForeignMemory(0x1000, 4096, "cuda:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Host("x", device, nil); !errors.Is(err, rdma.ErrUnavailable) {
		t.Errorf("device memory: %v", err)
	}
	m := memory(t)
	withdrawn := -1
	if _, err := g.Host("x", m, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Host("x", m, func(id uint32) { withdrawn = int(id) }); err != nil {
		t.Fatal(err)
	}
	g.Close()
	if withdrawn != 1 {
		t.Errorf("region %d was withdrawn, want 1", withdrawn)
	}
	if _, err := g.Host("x", m, nil); !errors.Is(err, rdma.ErrRefused) || !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
