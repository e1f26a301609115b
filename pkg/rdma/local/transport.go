package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"

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
	peers   registry.Peers
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
	t := &Transport{cfg: cfg}
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
	r, err := t.regions.Host(Name, m, func(id uint32) { t.control.set(id, stateWithdrawn) })
	if err != nil {
		return nil, err
	}
	if r.ID() >= maxRegions {
		return nil, fail("register", -1, rdma.ErrRefused, errors.Join(fmt.Errorf("%d regions are the limit", maxRegions), r.Close()))
	}
	t.control.set(r.ID(), stateServed)
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
	if !t.peers.Add(p) {
		p.unmap()
		return nil, fail("connect", r.Rank, rdma.ErrRefused, rdma.ErrClosed)
	}
	return p, nil
}

// Close implements rdma.Transport.
func (t *Transport) Close() error {
	first, err := t.peers.Close()
	t.regions.Close()
	if first {
		t.pool.close()
		err = errors.Join(err, t.control.close())
	}
	return err
}

func fail(op string, rank int, kind rdma.Kind, err error) error {
	return &rdma.Error{Kind: kind, Op: op, Transport: Name, Rank: rank, Err: err}
}
