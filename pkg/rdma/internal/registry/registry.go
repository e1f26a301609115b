// Package registry keeps what every transport's end has: its regions, numbered and counted, and its peers.
//
// A region's memory stays held from registration until it is withdrawn and its last use has ended. A peer is closed with
// its transport at the latest. The package moves no byte and knows no transport.
package registry

import (
	"errors"
	"fmt"
	"sync"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Registry is the regions of one endpoint, in order of registration. The zero value is empty and ready.
type Registry struct {
	mu      sync.Mutex
	closed  bool
	regions []*Region
}

// Region is one registered memory. It implements rdma.Region.
type Region struct {
	id       uint32
	mem      *rdma.Memory
	release  func()
	withdraw func() // of the transport, may be nil

	mu   sync.Mutex
	uses int
	gone bool
	once sync.Once
}

// Host registers memory for a transport that serves no other than host memory. Withdraw, if any, runs once when the region
// is closed, with its number. Errors are of the transport's operation "register".
func (g *Registry) Host(transport string, m *rdma.Memory, withdraw func(id uint32)) (*Region, error) {
	no := func(kind rdma.Kind, err error) error {
		return &rdma.Error{Kind: kind, Op: "register", Transport: transport, Rank: -1, Err: err}
	}
	if m.Backing() == rdma.Foreign {
		return nil, no(rdma.ErrUnavailable, errors.New("moves host memory only"))
	}
	var id uint32
	r, err := g.Add(m, func() {
		if withdraw != nil {
			withdraw(id)
		}
	})
	if err != nil {
		return nil, no(rdma.ErrRefused, err)
	}
	id = r.ID()
	return r, nil
}

// Add registers any memory. Withdraw, if any, runs once when the region is closed.
func (g *Registry) Add(m *rdma.Memory, withdraw func()) (*Region, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fmt.Errorf("register memory: %w", rdma.ErrClosed)
	}
	release, err := m.Hold()
	if err != nil {
		return nil, err
	}
	r := &Region{id: uint32(len(g.regions)), mem: m, release: release, withdraw: withdraw}
	g.regions = append(g.regions, r)
	return r, nil
}

// errWithdrawn is told to readers of a region that was closed.
var errWithdrawn = errors.New("withdrawn")

// Use keeps a region's memory held until done is called.
func (g *Registry) Use(id uint32) (m *rdma.Memory, done func(), err error) {
	g.mu.Lock()
	n := len(g.regions)
	if int64(id) >= int64(n) {
		g.mu.Unlock()
		return nil, nil, fmt.Errorf("region %d of %d", id, n)
	}
	r := g.regions[id]
	g.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return nil, nil, fmt.Errorf("region %d: %w", id, errWithdrawn)
	}
	r.uses++
	return r.mem, r.unuse, nil
}

// All lists the regions, withdrawn ones included.
func (g *Registry) All() []*Region {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*Region(nil), g.regions...)
}

// Close withdraws all regions and refuses new ones.
func (g *Registry) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	for _, r := range g.All() {
		_ = r.Close() // never fails
	}
}

// ID implements rdma.Region.
func (r *Region) ID() uint32 { return r.id }

// Memory is the registered memory.
func (r *Region) Memory() *rdma.Memory { return r.mem }

// Withdrawn says whether the region was closed.
func (r *Region) Withdrawn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone
}

// Describe implements rdma.Region.
func (r *Region) Describe() rdma.RemoteRegion {
	return rdma.RemoteRegion{Base: r.mem.Addr(), Nbytes: r.mem.Len(), Device: r.mem.Device()}
}

// Close implements rdma.Region.
func (r *Region) Close() error {
	r.once.Do(func() {
		if r.withdraw != nil {
			r.withdraw()
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone {
		r.gone = true
		r.maybeRelease()
	}
	return nil
}

func (r *Region) unuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uses--
	r.maybeRelease()
}

func (r *Region) maybeRelease() {
	if r.gone && r.uses == 0 {
		r.release()
	}
}
