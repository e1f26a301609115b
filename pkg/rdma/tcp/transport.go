package tcp

import (
	"errors"
	"fmt"
	"sync"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/registry"
)

// Transport serves registered regions, where it listens, and reads from peers.
type Transport struct {
	cfg     Config
	host    string
	regions registry.Registry
	server  *server // nil: reads only

	mu     sync.Mutex
	closed bool
	peers  map[*peer]struct{}
}

// New makes a transport, and opens its listener if one is configured.
func New(cfg Config) (*Transport, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configure tcp transport: %w", err)
	}
	t := &Transport{cfg: cfg, peers: map[*peer]struct{}{}}
	var err error
	if t.host, err = rdma.HostID(); err != nil {
		return nil, fmt.Errorf("start tcp transport: %w", err)
	}
	if cfg.Listen != "" {
		if t.server, err = listen(&t.cfg, &t.regions); err != nil {
			return nil, fmt.Errorf("start tcp transport: %w", err)
		}
	}
	return t, nil
}

// Name implements rdma.Transport.
func (t *Transport) Name() string { return Name }

// Incarnation is this life of the endpoint.
func (t *Transport) Incarnation() string { return t.cfg.Incarnation }

// Register implements rdma.Transport. Only host memory is accepted.
func (t *Transport) Register(m *rdma.Memory) (rdma.Region, error) {
	if m.Backing() == rdma.Foreign {
		return nil, fail("register", -1, rdma.ErrUnavailable, errors.New("tcp moves host memory only"))
	}
	r, err := t.regions.Add(m, nil)
	if err != nil {
		return nil, fail("register", -1, rdma.ErrRefused, err)
	}
	return r, nil
}

// Access implements rdma.Transport.
func (t *Transport) Access() (rdma.Access, error) {
	if t.server == nil {
		return rdma.Access{}, fail("access", -1, rdma.ErrUnavailable, errors.New("configured to read only"))
	}
	return rdma.Access{Transport: Name, Agent: t.server.addr(), Metadata: t.server.access.encode()}, nil
}

// Close implements rdma.Transport.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	peers := make([]*peer, 0, len(t.peers))
	for p := range t.peers {
		peers = append(peers, p)
	}
	t.mu.Unlock()
	var errs []error
	for _, p := range peers {
		errs = append(errs, p.Close())
	}
	t.regions.Close()
	if t.server != nil {
		errs = append(errs, t.server.close())
	}
	return errors.Join(errs...)
}

// keep follows a new peer; false once the transport is closed.
func (t *Transport) keep(p *peer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.peers[p] = struct{}{}
	}
	return !t.closed
}

func (t *Transport) forget(p *peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.peers, p)
}

func fail(op string, rank int, kind rdma.Kind, err error) error {
	return &rdma.Error{Kind: kind, Op: op, Transport: Name, Rank: rank, Err: err}
}
