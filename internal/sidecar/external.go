package sidecar

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

// inPlace is an engine for memory that another process has registered with NIXL: device memory most often, read where it
// lies. There is one of everything, so a version must be withdrawn before the trainer changes the bytes.
type inPlace struct {
	control  *messages.Control
	record   messages.RunRecord
	rank     int
	layout   *messages.Layout
	endpoint *messages.Endpoint
	commit   time.Duration // longest wait for the other ranks
	status   func(ctx context.Context, slots []messages.Slot, run uint64)
	renewal  sync.WaitGroup
	end      context.CancelFunc // of the renewal

	mu   sync.Mutex
	slot messages.Slot
}

// renewInterval is how often a status is put again without a change. It expires a minute after it was put last.
const renewInterval = 15 * time.Second

// keepStatus renews the status until close: a trainer may take longer for a step than a status lasts, and its ranks would
// look as if they were gone.
func (p *inPlace) keepStatus(every time.Duration) {
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	p.renewal.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			p.status(ctx, p.slots(), p.record.Run)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

// foreignEndpoint describes the memory of an agent that the trainer's process made.
func foreignEndpoint(rank int, host, session string, e *Endpoint) (*messages.Endpoint, error) {
	out := &messages.Endpoint{Rank: rank, Host: host, Incarnation: session}
	remote := make([]rdma.RemoteRegion, len(e.Regions))
	for i, r := range e.Regions {
		remote[i] = rdma.RemoteRegion{Base: r.Base, Nbytes: r.Nbytes, Device: r.Device}
		out.Regions = append(out.Regions, messages.EndpointRegion{Base: r.Base, Nbytes: r.Nbytes, Device: r.Device})
	}
	access, err := nixl.ForeignAccess(e.Agent, e.Metadata, remote)
	if err != nil {
		return nil, refuse(BadRequest, "describe agent %q: %v", e.Agent, err)
	}
	out.Access = []messages.Access{{Transport: access.Transport, Agent: access.Agent, Metadata: access.Metadata}}
	return out, nil
}

// check refuses an endpoint before anything is made of it.
func (e *Endpoint) check() error {
	switch {
	case e == nil || e.Agent == "" || len(e.Metadata) == 0 || len(e.Regions) == 0:
		return refuse(BadRequest, "memory that is read in place needs an endpoint with agent, metadata and regions")
	case len(e.Agent) > messages.MaxText || len(e.Metadata) > messages.MaxMetadata || len(e.Regions) > messages.MaxRegions:
		return refuse(LimitExceeded, "agent of %d bytes, metadata of %d, %d regions: at most %d, %d and %d",
			len(e.Agent), len(e.Metadata), len(e.Regions), messages.MaxText, messages.MaxMetadata, messages.MaxRegions)
	}
	for i, r := range e.Regions {
		if r.Nbytes < 1 || r.Base == 0 || r.Base+uint64(r.Nbytes) < r.Base {
			return refuse(BadRequest, "region %d: %d bytes at %#x", i, r.Nbytes, r.Base)
		}
	}
	return nil
}

// digests reads what a publish brings: the digests of all tiles of the entries that carry some, in their order. Those of
// other names of a tensor are the tensor's own; those that nobody makes stay zero, and are named.
func (g *geometry) digests(b []byte) (*messages.Tiles, error) {
	want := g.tiles()
	if g.layout.Grid == nil && len(b) == 0 {
		return nil, nil
	}
	if len(b) != 8*want {
		return nil, refuse(DigestsPartial, "%d bytes of digests, the entries that carry digests have %d tiles of 8 bytes each", len(b), want)
	}
	rows, n := g.rows()
	out := &messages.Tiles{Digests: make([]uint64, n), Bare: g.bare}
	for k := range rows {
		mine := out.Digests[rows[k].First:][:tiles.Count(rows[k].Grid, rows[k].Box)]
		switch {
		case !out.Carries(rows[k].Source):
		case k >= len(g.source):
			copy(mine, out.Digests[rows[g.like[k-len(g.source)]].First:])
		default:
			for i := range mine {
				mine[i] = binary.LittleEndian.Uint64(b)
				b = b[8:]
			}
		}
	}
	return out, nil
}

// tiles is how many tiles the entries that carry digests have together.
func (g *geometry) tiles() int {
	if g.layout.Grid == nil {
		return 0
	}
	rows, _ := g.rows()
	carries := messages.Tiles{Bare: g.bare}
	n := 0
	for k := range g.source {
		if carries.Carries(rows[k].Source) {
			n += tiles.Count(rows[k].Grid, rows[k].Box)
		}
	}
	return n
}

// rows are the tiles of each shard: those of the entries, in their order, and then those of other names.
func (g *geometry) rows() ([]tiles.Shard, int) {
	l := g.layout
	t := tiles.Table{ShapeEnd: l.ShapeEnd, Grid: l.Grid, Source: l.Source, Offset: l.Offset, Box: l.Box, Stride: l.Stride}
	return t.Shards()
}

func (p *inPlace) run() messages.RunRecord { return p.record }

func (p *inPlace) close() error {
	p.end()
	p.renewal.Wait()
	return nil
}

func (p *inPlace) slots() []messages.Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []messages.Slot{p.slot}
}

func (p *inPlace) set(ctx context.Context, s messages.Slot) {
	p.mu.Lock()
	p.slot = s
	p.mu.Unlock()
	p.status(ctx, p.slots(), p.record.Run)
}

func (p *inPlace) key(version uint64) messages.Key {
	return messages.Key{Run: p.record.Run, Version: version}
}

func (p *inPlace) claim(ctx context.Context, version uint64, _ int) (int, error) {
	if held := p.slots()[0].Key; !held.IsZero() && held.Version != version {
		if err := p.retire(ctx, held.Version); err != nil {
			return -1, err
		}
	}
	p.set(ctx, messages.Slot{State: "filling"})
	return 0, nil
}

func (p *inPlace) publish(ctx context.Context, version uint64, c content) (*messages.Manifest, error) {
	key := p.key(version)
	p.set(ctx, messages.Slot{Key: key, State: "published"})
	pub := messages.Publication{
		Key: key, Rank: p.rank, World: p.record.World, Layout: p.layout, Endpoint: p.endpoint, Tiles: c.digests, Base: c.base, Changed: c.changed,
	}
	if err := p.control.Publish(ctx, pub); err != nil {
		return nil, fmt.Errorf("publish run %d version %d of rank %d: %w", key.Run, version, p.rank, err)
	}
	bounded, cancel := context.WithTimeout(ctx, p.commit)
	defer cancel()
	m, err := p.control.Commit(bounded, key, p.record.World)
	if err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			err = errors.Join(err, p.control.Abandon(ctx, key, fmt.Sprintf("rank %d waited %v", p.rank, p.commit)))
		}
		return nil, fmt.Errorf("commit run %d version %d: %w", key.Run, version, err)
	}
	p.set(ctx, messages.Slot{Key: key, State: "committed"})
	return m, nil
}

func (p *inPlace) retire(ctx context.Context, version uint64) error {
	key := p.key(version)
	if p.slots()[0].Key == key {
		p.set(ctx, messages.Slot{Key: key, State: "retiring"})
	}
	if err := p.control.Retire(ctx, key, p.rank); err != nil {
		return fmt.Errorf("retire run %d version %d of rank %d: %w", key.Run, version, p.rank, err)
	}
	if p.slots()[0].Key == key {
		p.set(ctx, messages.Slot{State: "drained"})
	}
	return nil
}
