// Package inproc is the reference transport: readers and endpoints in one process, copies done one byte run after
// another by the simplest code. Other transports are compared with it; only tests use it.
package inproc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/pending"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/registry"
)

// Name is the transport's name.
const Name = "inproc"

// Net is a set of endpoints that can reach each other.
type Net struct {
	mu   sync.Mutex
	ends map[string]*Transport // by incarnation
}

// NewNet makes an empty net.
func NewNet() *Net { return &Net{ends: map[string]*Transport{}} }

// Transport is one endpoint on a net.
type Transport struct {
	net         *Net
	incarnation string

	regions registry.Registry
	closed  atomic.Bool
	reads   sync.WaitGroup
}

// New adds an endpoint. Its incarnation is its address.
func (n *Net) New(incarnation string) *Transport {
	t := &Transport{net: n, incarnation: incarnation}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[incarnation] = t
	return t
}

// Name implements rdma.Transport.
func (t *Transport) Name() string { return Name }

// Access implements rdma.Transport.
func (t *Transport) Access() (rdma.Access, error) {
	return rdma.Access{Transport: Name, Agent: t.incarnation, Metadata: []byte(t.incarnation)}, nil
}

// Register implements rdma.Transport.
func (t *Transport) Register(m *rdma.Memory) (rdma.Region, error) {
	r, err := t.regions.Host(Name, m, nil)
	if err != nil {
		return nil, err // r would be an interface that isn't nil
	}
	return r, nil
}

// Connect implements rdma.Transport.
func (t *Transport) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fail("connect", r.Rank, rdma.ErrTimeout, err)
	}
	if t.closed.Load() {
		return nil, fail("connect", r.Rank, rdma.ErrRefused, rdma.ErrClosed)
	}
	t.net.mu.Lock()
	end := t.net.ends[string(r.Access.Metadata)]
	t.net.mu.Unlock()
	switch {
	case r.Access.Transport != Name:
		return nil, fail("connect", r.Rank, rdma.ErrUnavailable, fmt.Errorf("access is of %q", r.Access.Transport))
	case end == nil:
		return nil, fail("connect", r.Rank, rdma.ErrUnreachable, fmt.Errorf("no endpoint %q", r.Access.Metadata))
	case end.incarnation != r.Incarnation:
		return nil, fail("connect", r.Rank, rdma.ErrStale, fmt.Errorf("want %s, found %s", r.Incarnation, end.incarnation))
	}
	return &peer{local: t, end: end, remote: r}, nil
}

// Close implements rdma.Transport.
func (t *Transport) Close() error {
	t.net.mu.Lock()
	delete(t.net.ends, t.incarnation)
	t.net.mu.Unlock()
	t.closed.Store(true)
	t.regions.Close()
	t.reads.Wait()
	return nil
}

type peer struct {
	local, end *Transport
	remote     rdma.Remote
	live       pending.Set
}

// Read implements rdma.Peer.
func (p *peer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	if p.local.closed.Load() {
		return nil, fail("read", p.remote.Rank, rdma.ErrRefused, rdma.ErrClosed)
	}
	if _, err := rdma.CheckAll(segs, p.remote.Regions, dst.Len()); err != nil {
		return nil, fail("read", p.remote.Rank, rdma.ErrRefused, err)
	}
	t, err := pending.New(&p.live, Name, p.remote.Rank, dst, 1, nil)
	if err != nil {
		return nil, err
	}
	p.local.reads.Go(func() { t.Done(p.copyAll(t, dst, segs)) })
	return t, nil
}

func (p *peer) copyAll(t *pending.Transfer, dst *rdma.Memory, segs []rdma.Segment) error {
	for i := range segs {
		if err := t.Err(); err != nil {
			return err
		}
		if p.end.closed.Load() {
			return t.Fail(rdma.ErrReset, rdma.ErrClosed)
		}
		if err := p.copyOne(dst.Bytes(), &segs[i]); err != nil {
			return t.Fail(rdma.ErrRefused, err)
		}
	}
	return nil
}

func (p *peer) copyOne(dst []byte, s *rdma.Segment) error {
	m, done, err := p.end.regions.Use(s.Region)
	if err != nil {
		return err
	}
	defer done()
	if err := s.Check(m.Len(), int64(len(dst))); err != nil {
		return err
	}
	for i := range s.N[0] {
		for j := range s.N[1] {
			for k := range s.N[2] {
				from := s.Src + i*s.SrcStride[0] + j*s.SrcStride[1] + k*s.SrcStride[2]
				to := s.Dst + i*s.DstStride[0] + j*s.DstStride[1] + k*s.DstStride[2]
				copy(dst[to:to+s.Run], m.Bytes()[from:from+s.Run])
			}
		}
	}
	return nil
}

// Close implements rdma.Peer.
func (p *peer) Close() error {
	for _, t := range p.live.CloseAll() {
		<-t.Finished()
	}
	return nil
}

func fail(op string, rank int, kind rdma.Kind, err error) error {
	return &rdma.Error{Kind: kind, Op: op, Transport: Name, Rank: rank, Err: err}
}
