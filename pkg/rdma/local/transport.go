package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/registry"
)

// Name is the transport's name.
const Name = "local"

// Config says how to serve and read. The zero value does both.
type Config struct {
	Incarnation string       // this life of the endpoint; default rdma.NewIncarnation()
	Workers     int          // goroutines that copy, for all peers together; default GOMAXPROCS
	Logger      *slog.Logger // default: none
}

func (c *Config) validate() error {
	if c.Incarnation == "" {
		c.Incarnation = rdma.NewIncarnation()
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Workers < 0 || len(c.Incarnation) > maxName {
		return fmt.Errorf("%d workers, incarnation of %d bytes (at most %d)", c.Workers, len(c.Incarnation), maxName)
	}
	return nil
}

// Transport is one process's end.
type Transport struct {
	cfg     Config
	host    string
	pidNS   uint64
	regions registry.Registry
	control *control
	pool    *pool

	mu     sync.Mutex
	closed bool
	peers  map[*peer]struct{}
}

// New makes a transport and starts its workers.
func New(cfg Config) (*Transport, error) {
	t, err := newTransport(cfg)
	if err != nil {
		return nil, fmt.Errorf("start local transport: %w", err)
	}
	return t, nil
}

func newTransport(cfg Config) (*Transport, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Transport{cfg: cfg, peers: map[*peer]struct{}{}}
	var err error
	if t.host, err = rdma.HostID(); err != nil {
		return nil, err
	}
	if t.pidNS, err = pidNamespace(); err != nil {
		return nil, err
	}
	if t.control, err = newControl(cfg.Incarnation); err != nil {
		return nil, err
	}
	t.pool = newPool(cfg.Workers)
	return t, nil
}

// Name implements rdma.Transport.
func (t *Transport) Name() string { return Name }

// Incarnation is this life of the endpoint.
func (t *Transport) Incarnation() string { return t.cfg.Incarnation }

// Register implements rdma.Transport. Only host memory is accepted.
func (t *Transport) Register(m *rdma.Memory) (rdma.Region, error) {
	if m.Backing() == rdma.Foreign {
		return nil, fail("register", -1, rdma.ErrUnavailable, errors.New("local moves host memory only"))
	}
	var id uint32
	r, err := t.regions.Add(m, func() { t.control.set(id, stateWithdrawn) })
	if err != nil {
		return nil, fail("register", -1, rdma.ErrRefused, err)
	}
	if id = r.ID(); id >= maxRegions {
		return nil, fail("register", -1, rdma.ErrRefused, errors.Join(fmt.Errorf("%d regions are the limit", maxRegions), r.Close()))
	}
	t.control.set(id, stateServed)
	return r, nil
}

// Access implements rdma.Transport.
func (t *Transport) Access() (rdma.Access, error) {
	pid := uint32(os.Getpid())
	start, err := startTime(pid)
	if err != nil {
		return rdma.Access{}, fail("access", -1, rdma.ErrUnavailable, fmt.Errorf("read own start time: %w", err))
	}
	a := access{PID: pid, Start: start, PidNS: t.pidNS, Control: fileOf(t.control.mem)}
	for _, r := range t.regions.All() {
		ra := regionAccess{Nbytes: r.Memory().Len(), Base: r.Memory().Addr(), File: file{FD: -1}}
		if !r.Withdrawn() {
			ra.File = fileOf(r.Memory())
		}
		a.Regions = append(a.Regions, ra)
	}
	return rdma.Access{Transport: Name, Agent: fmt.Sprintf("pid %d", pid), Metadata: a.encode()}, nil
}

func fileOf(m *rdma.Memory) file {
	dev, ino := m.Inode()
	return file{FD: int32(m.FD()), Dev: dev, Ino: ino}
}

// Connect implements rdma.Transport. It doesn't block.
func (t *Transport) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fail("connect", r.Rank, rdma.ErrTimeout, err)
	}
	p, err := t.connect(r)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		p.unmap()
		return nil, fail("connect", r.Rank, rdma.ErrRefused, rdma.ErrClosed)
	}
	t.peers[p] = struct{}{}
	return p, nil
}

// Close implements rdma.Transport.
func (t *Transport) Close() error {
	t.mu.Lock()
	wasClosed := t.closed
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
	if !wasClosed {
		t.pool.close()
		errs = append(errs, t.control.close())
	}
	return errors.Join(errs...)
}

func (t *Transport) forget(p *peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.peers, p)
}

func fail(op string, rank int, kind rdma.Kind, err error) error {
	return &rdma.Error{Kind: kind, Op: op, Transport: Name, Rank: rank, Err: err}
}
