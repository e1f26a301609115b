package tcp

import (
	"errors"
	"fmt"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/registry"
)

// Transport serves registered regions, where it listens, and reads from peers.
type Transport struct {
	cfg     Config
	host    string
	regions registry.Registry
	peers   registry.Peers
	server  *server // nil: reads only
}

// New makes a transport, and opens its listener if one is configured.
func New(cfg Config) (*Transport, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configure tcp transport: %w", err)
	}
	t := &Transport{cfg: cfg}
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
	r, err := t.regions.Host(Name, m, nil)
	if err != nil {
		return nil, err // r would be an interface that isn't nil
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

// Guard implements rdma.Gated.
func (t *Transport) Guard(admit rdma.Admit) {
	if t.server != nil {
		t.server.gate.Store(&admit)
	}
}

// Close implements rdma.Transport.
func (t *Transport) Close() error {
	_, err := t.peers.Close()
	t.regions.Close()
	if t.server != nil {
		err = errors.Join(err, t.server.close())
	}
	return err
}

func fail(op string, rank int, kind rdma.Kind, err error) error {
	return &rdma.Error{Kind: kind, Op: op, Transport: Name, Rank: rank, Err: err}
}
