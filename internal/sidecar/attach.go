package sidecar

import (
	"context"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/internal/tiles"
)

// attach creates, adopts or confirms the arena of a rank for the process pid.
func (s *Sidecar) attach(ctx context.Context, rank, pid int, req *AttachRequest, external bool) (*AttachAnswer, error) {
	if req.Model != s.cfg.Model {
		return nil, refuse(WrongModel, "this sidecar serves model %q, not %q", s.cfg.Model, req.Model)
	}
	if err := req.check(rank); err != nil {
		return nil, err
	}
	g, err := s.geometry(ctx, rank, req, external)
	if err != nil {
		return nil, coded(err)
	}
	s.attaching.Lock()
	defer s.attaching.Unlock()
	o := newOwner(pid, s.cfg.Now())
	before, err := s.arenaOf(rank)
	if err == nil {
		same, err := s.reattach(ctx, before, req, g, o, external)
		if same != nil || err != nil {
			return same, err
		}
	}
	a, err := s.make(rank, req, g, o, external)
	if err != nil {
		return nil, err
	}
	return &a.answer, nil
}

func (s *Sidecar) geometry(ctx context.Context, rank int, req *AttachRequest, external bool) (*geometry, error) {
	if !external {
		var asked served.Asked
		if s.cfg.Served == served.Auto {
			statuses, err := s.cfg.Control.Statuses(ctx)
			if err != nil {
				return nil, fmt.Errorf("ask what receivers take: %w", err)
			}
			asked = served.AskedBy(statuses)
		}
		o := s.cfg.Served.Options(asked)
		o.Tiles = s.cfg.Tiles
		return lay(rank, req, o, s.cfg.MaxBytes)
	}
	if err := req.Endpoint.check(); err != nil {
		return nil, err
	}
	var o *tiles.Options
	if req.Digests {
		o = &s.cfg.Tiles
	}
	return describe(rank, req, o)
}

// reattach gives a client the arena that its rank has, if it is what it asks for. Another one is ended first: nil, nil.
func (s *Sidecar) reattach(ctx context.Context, a *arena, req *AttachRequest, g *geometry, o owner, external bool) (*AttachAnswer, error) {
	a.mu.Lock()
	a.owner.look(s.cfg.Now())
	other := a.owner.alive() && a.owner.pid != o.pid && a.session != req.Session
	holder, closing := a.owner.pid, a.closing != nil
	a.mu.Unlock()
	if other {
		return nil, refuse(RankTaken, "rank %d is held by the living process %d", a.rank, holder)
	}
	same := a.req.Job == req.Job && a.req.World == req.World && a.geometry.digest == g.digest && !closing
	if same && !a.external && !external {
		a.attach(req.Session, o)
		answer := a.answer
		answer.Adopted = true
		return &answer, nil
	}
	if same && external && a.external && a.session == req.Session {
		return &a.answer, nil // the endpoint is the session's own
	}
	return nil, s.replace(ctx, a)
}

// replace ends an arena so that another can take its rank. Readers are waited for.
func (s *Sidecar) replace(ctx context.Context, a *arena) error {
	a.log.Info("arena ends: its rank attaches with another launch or layout")
	t := a.close()
	select {
	case <-t.done:
	case <-ctx.Done():
		return refuse(ArenaBusy, "the arena of an earlier launch of rank %d is still being ended", a.rank)
	}
	if !a.ended() {
		e := refuse(ArenaBusy, "the arena of an earlier launch of rank %d is still read", a.rank)
		e.Retry = true
		return e
	}
	a.stop()
	s.mu.Lock()
	delete(s.arenas, a.rank)
	s.mu.Unlock()
	return nil
}

// make opens a new arena.
func (s *Sidecar) make(rank int, req *AttachRequest, g *geometry, o owner, external bool) (*arena, error) {
	s.mu.Lock()
	n, closed := len(s.arenas), s.closed
	delete(s.leftovers, rank)
	s.mu.Unlock()
	if closed {
		return nil, refuse(ArenaBusy, "the sidecar is being stopped")
	}
	if n >= MaxArenas {
		return nil, refuse(LimitExceeded, "this sidecar has %d arenas, which is its limit", n)
	}
	a := &arena{
		rank: rank, req: *req, external: external, geometry: g, owner: o, session: req.Session,
		control: s.cfg.Control, drain: s.cfg.DrainTimeout, log: s.cfg.Logger.With("rank", rank, "job", req.Job),
	}
	a.req.Entries, a.req.Endpoint = nil, nil
	var err error
	if external {
		err = s.describeExternal(a, req)
	} else {
		err = s.openFiles(a)
	}
	if err != nil {
		return nil, coded(err)
	}
	a.start(s.ctx)
	s.mu.Lock()
	s.arenas[rank], s.busy = a, s.cfg.Now()
	s.mu.Unlock()
	return a, nil
}

func (s *Sidecar) openFiles(a *arena) error {
	began := time.Now()
	f, err := openFiles(s.cfg.ArenaRoot, identity{
		Model: s.cfg.Model, Rank: a.rank, World: a.req.World, Job: a.req.Job, Layout: a.geometry.digest,
		Nbytes: a.geometry.layout.Regions[0], Slots: s.cfg.Slots,
	}, s.cfg.Now())
	if err != nil {
		return err
	}
	a.files, a.open = f, s.engineOf(a)
	a.answer = AttachAnswer{
		Rank: a.rank, Generation: f.generation, Adopted: f.adopted, Nbytes: a.geometry.layout.Regions[0], Slots: f.paths(),
		Places: a.geometry.places, Layout: a.geometry.digest,
	}
	a.log.Info("arena opened", "generation", f.generation, "adopted", f.adopted, "bytes", a.answer.Nbytes, "slots", len(f.slots), "took", time.Since(began))
	return nil
}

// describeExternal answers with the tile grids, where the trainer computes digests.
func (s *Sidecar) describeExternal(a *arena, req *AttachRequest) error {
	endpoint, err := foreignEndpoint(a.rank, s.host, req.Session, req.Endpoint)
	if err != nil {
		return err
	}
	l := a.geometry.layout
	a.open = s.inPlaceOf(a, endpoint)
	a.answer = AttachAnswer{Rank: a.rank, Generation: s.cfg.Now().UnixMilli(), Nbytes: l.Nbytes(), Layout: a.geometry.digest}
	if l.Grid != nil {
		a.answer.Tiles = a.geometry.tiles()
		for _, source := range a.geometry.source {
			first := uint32(0)
			if source > 0 {
				first = l.ShapeEnd[source-1]
			}
			a.answer.Grids = append(a.answer.Grids, l.Grid[first:l.ShapeEnd[source]])
		}
	}
	a.log.Info("external memory described", "agent", req.Endpoint.Agent, "regions", len(req.Endpoint.Regions), "digests", req.Digests)
	return nil
}

// detach ends an arena at its client's wish, and waits for readers as long as told.
func (s *Sidecar) detach(ctx context.Context, a *arena, r *VersionRequest) error {
	a.mu.Lock()
	superseded := r.Session != a.session
	a.mu.Unlock()
	if superseded {
		return refuse(Superseded, "a newer client has attached to rank %d", a.rank)
	}
	t := a.close()
	ctx, cancel := context.WithTimeout(ctx, r.wait())
	defer cancel()
	select {
	case <-t.done:
	case <-ctx.Done():
		return held(a, "is still being ended")
	}
	if !a.ended() {
		return held(a, "is still read")
	}
	s.lookOnce(s.cfg.Now())
	return nil
}

// held says who keeps an arena.
func held(a *arena, what string) error {
	e := refuse(Held, "the arena of rank %d %s", a.rank, what)
	e.Retry = true
	a.mu.Lock()
	en := a.engine
	a.mu.Unlock()
	if en != nil {
		for _, s := range a.holders(context.Background(), en) {
			e.Holders = append(e.Holders, s.Holders...)
		}
	}
	return e
}
