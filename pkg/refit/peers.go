package refit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
)

// peers keeps connections to trainer ranks over versions. A rank whose endpoint has changed is connected anew.
type peers struct {
	transports []rdma.Transport
	lease      string // the name under which this receiver holds its leases
	log        *slog.Logger

	mu     sync.Mutex
	byRank map[int]*peer
}

// peer is the connection to one rank. Its mutex is held while it connects, so that the others of the rank wait.
type peer struct {
	mu        sync.Mutex
	endpoint  messages.Digest
	conn      rdma.Peer
	transport string

	lost rdma.Peer // the connection that was dropped last
	why  error
}

func newPeers(ts []rdma.Transport, lease string, log *slog.Logger) *peers {
	return &peers{transports: ts, lease: lease, log: log, byRank: map[int]*peer{}}
}

func (ps *peers) slot(rank int) *peer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byRank[rank]
	if p == nil {
		p = &peer{}
		ps.byRank[rank] = p
	}
	return p
}

// get connects to a rank of a version, or finds that it is connected.
func (ps *peers) get(ctx context.Context, v *messages.Version, rank int) (rdma.Peer, string, error) {
	p := ps.slot(rank)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &v.Ranks[rank]
	if p.conn != nil && p.endpoint == r.Digests.Endpoint {
		return p.conn, p.transport, nil
	}
	if err := p.close(); err != nil {
		ps.log.Warn("connection not closed cleanly", "rank", rank, "error", err)
	}
	o := offer(rank, r.Endpoint)
	o.Lease = ps.lease
	conn, choice, err := rdma.Connect(ctx, ps.transports, o)
	if err != nil {
		return nil, "", err
	}
	ps.log.Info("connected", "rank", rank, "transport", choice.Transport, "choice", choice.String())
	p.conn, p.transport, p.endpoint = conn, choice.Transport, r.Digests.Endpoint
	return p.conn, p.transport, nil
}

// transport is how a rank was reached last, "" if it never was.
func (ps *peers) transport(rank int) string {
	p := ps.slot(rank)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.transport
}

// drop closes the connection to a rank, if it still is conn, so that the next get connects anew. What else was being read
// over it is aborted by that: why tells those what happened.
func (ps *peers) drop(rank int, conn rdma.Peer, why error) {
	p := ps.slot(rank)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != conn {
		return
	}
	p.lost, p.why = conn, why
	if err := p.close(); err != nil {
		ps.log.Warn("connection not closed cleanly", "rank", rank, "error", err)
	}
}

// whyLost is what a connection was dropped for, nil if it was not, or too long ago.
func (ps *peers) whyLost(rank int, conn rdma.Peer) error {
	p := ps.slot(rank)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != conn {
		return nil
	}
	return p.why
}

func (p *peer) close() error {
	conn := p.conn
	p.conn = nil
	if conn == nil {
		return nil
	}
	return conn.Close()
}

func (ps *peers) close() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var errs []error
	for _, p := range ps.byRank {
		p.mu.Lock()
		errs = append(errs, p.close())
		p.mu.Unlock()
	}
	return errors.Join(errs...)
}

// likelyTransport is the first that a rank offers and this receiver prefers, "" where there is none. Memory of the same
// host is reached only on it; what connecting finds out besides, it finds out too late for a plan.
func (r *Receiver) likelyTransport(v *messages.Version, rank int) string {
	e := v.Ranks[rank].Endpoint
	for _, t := range r.cfg.Transports {
		offered := slices.ContainsFunc(e.Access, func(a messages.Access) bool { return a.Transport == t.Name() })
		if offered && (t.Name() != local.Name || e.Host == r.cfg.Host) {
			return t.Name()
		}
	}
	return ""
}
