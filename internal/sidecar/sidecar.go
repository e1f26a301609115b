package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// Config says what a sidecar is made of. Model, Control, Transports and ArenaRoot are needed.
type Config struct {
	Model      string // full name
	Control    *messages.Control
	Transports func(incarnation string) (ts []rdma.Transport, end func() error, err error) // makes those of one arena
	ArenaRoot  string                                                                      // folder in shared memory

	Keep     messages.Keep // which versions stay readable; one slot more is needed
	Slots    int           // of an arena; default 2
	Tiles    tiles.Options // of digests
	MaxBytes int64         // of a slot; default the host's memory, shared by the slots
	Served   served.Mode   // how boxes are laid out; default plain. Auto is decided when a rank attaches

	CommitTimeout time.Duration // longest wait for the other ranks; default 10 min
	DrainTimeout  time.Duration // longest wait for readers of memory that is needed again; default 10 min
	Grace         time.Duration // how long the versions of a trainer that died stay readable; default 10 min
	Idle          time.Duration // the same for a trainer that can't be seen and says nothing; default 1 h
	Look          time.Duration // how often is looked for trainers that died; default 1 s

	Logger  *slog.Logger
	Tracer  trace.Tracer
	Details trace.TracerProvider
	Metrics *tracing.Metrics
	Now     func() time.Time // default time.Now
}

func (c *Config) validate() error {
	if c.Model == "" || c.Control == nil || c.Transports == nil || c.ArenaRoot == "" {
		return fmt.Errorf("model %q, control %t, transports %t, arena root %q: all are needed", c.Model, c.Control != nil, c.Transports != nil, c.ArenaRoot)
	}
	if c.Slots == 0 {
		c.Slots = 2
	}
	if c.Slots < 2 || c.Slots > 8 {
		return fmt.Errorf("%d slots: 2 to 8 are expected, so that a version is read while the next is written", c.Slots)
	}
	if err := c.Keep.CheckSlots(c.Slots); err != nil {
		return err
	}
	for _, d := range []struct {
		of    *time.Duration
		value time.Duration
	}{{&c.CommitTimeout, 10 * time.Minute}, {&c.DrainTimeout, 10 * time.Minute}, {&c.Grace, 10 * time.Minute}, {&c.Idle, time.Hour}, {&c.Look, time.Second}} {
		if *d.of == 0 {
			*d.of = d.value
		}
	}
	if c.MaxBytes == 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return fmt.Errorf("ask for the host's memory: %w", err)
		}
		c.MaxBytes = int64(info.Totalram) * int64(info.Unit) / int64(c.Slots)
	}
	if c.Served == "" {
		c.Served = served.Plain
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return nil
}

// Sidecar serves the arenas of the trainer ranks on this host.
type Sidecar struct {
	cfg     Config
	host    string
	started time.Time

	ctx    context.Context // of everything that arenas do
	cancel context.CancelFunc
	looks  sync.WaitGroup

	attaching sync.Mutex // one attach at a time: each may take and give back memory
	mu        sync.Mutex
	arenas    map[int]*arena // by rank
	leftovers map[int]leftover
	busy      time.Time // when there last was an arena
	closed    bool
}

// leftover is an arena on disk that an earlier life served, and nobody has attached to yet.
type leftover struct {
	dir   string
	since time.Time
}

// New makes a sidecar. Arenas that an earlier life left on disk wait for their trainers as long as the grace time.
func New(ctx context.Context, cfg Config) (*Sidecar, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make sidecar: %w", err)
	}
	host, err := rdma.HostID()
	if err != nil {
		return nil, fmt.Errorf("make sidecar: %w", err)
	}
	if err := os.MkdirAll(cfg.ArenaRoot, 0o700); err != nil {
		return nil, fmt.Errorf("make sidecar: %w", err)
	}
	found, err := left(cfg.ArenaRoot, cfg.Model)
	if err != nil {
		return nil, fmt.Errorf("make sidecar: %w", err)
	}
	now := cfg.Now()
	s := &Sidecar{cfg: cfg, host: host, started: now, busy: now, arenas: map[int]*arena{}, leftovers: map[int]leftover{}}
	for rank, dir := range found {
		s.leftovers[rank] = leftover{dir, now}
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.looks.Go(s.look)
	return s, nil
}

// look watches over trainers until the sidecar closes.
func (s *Sidecar) look() {
	tick := time.NewTicker(s.cfg.Look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.lookOnce(s.cfg.Now())
		case <-s.ctx.Done():
			return
		}
	}
}

// lookOnce ends the arenas whose trainers are gone, and forgets those that have ended.
func (s *Sidecar) lookOnce(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, a := range s.arenas {
		if a.ended() {
			a.stop() // the worker has left already
			delete(s.arenas, rank)
			s.busy = now
			continue
		}
		if a.looked(now, s.cfg.Grace, s.cfg.Idle) {
			a.log.Warn("arena ends: its trainer is gone")
			a.close()
		}
	}
	for rank, l := range s.leftovers {
		if now.Sub(l.since) >= s.cfg.Grace {
			s.cfg.Logger.Warn("arena of an earlier life removed: no trainer came for it", "rank", rank, "error", removeLeft(l.dir))
			delete(s.leftovers, rank)
		}
	}
	if len(s.arenas) > 0 {
		s.busy = now
	}
}

// IdleSince is when the sidecar last had an arena; false while it has one.
func (s *Sidecar) IdleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy, len(s.arenas) == 0
}

// looked looks after the trainer, and says whether the arena has nobody any more.
func (a *arena) looked(now time.Time, grace, idle time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.owner.alive()
	a.owner.look(now)
	if was && !a.owner.alive() {
		a.log.Warn("trainer is gone", "pid", a.owner.pid, "grace", grace, "external", a.external)
	}
	if a.external {
		grace = 0 // the memory is gone with the process
	}
	return a.closing == nil && a.owner.orphaned(now, grace, idle)
}

// ended says whether the arena's memory has been given back.
func (a *arena) ended() bool {
	a.mu.Lock()
	t := a.closing
	a.mu.Unlock()
	if t == nil {
		return false
	}
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// arenaOf is the arena of a rank.
func (s *Sidecar) arenaOf(rank int) (*arena, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.arenas[rank]; a != nil {
		return a, nil
	}
	return nil, refuse(NoArena, "rank %d has no arena here: attach first", rank)
}

// all lists the arenas by rank.
func (s *Sidecar) all() []*arena {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*arena, 0, len(s.arenas))
	for _, a := range s.arenas {
		out = append(out, a)
	}
	slices.SortFunc(out, func(x, y *arena) int { return x.rank - y.rank })
	return out
}

// Close withdraws what is served, waits for readers until ctx ends, and gives everything back. The files of trainers that
// live stay, for the next life of the sidecar to adopt.
func (s *Sidecar) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.looks.Wait()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, a := range s.all() {
		wg.Go(func() {
			err := a.leave(ctx)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	s.mu.Lock()
	clear(s.arenas)
	s.mu.Unlock()
	return errors.Join(errs...)
}

// leave ends the arena because its sidecar ends.
func (a *arena) leave(ctx context.Context) error {
	a.stop()
	a.mu.Lock()
	e := a.engine
	a.owner.look(time.Now())
	keep := a.owner.pid == 0 || a.owner.alive()
	a.mu.Unlock()
	var errs []error
	if e != nil {
		for _, slot := range e.slots() {
			if !slot.Key.IsZero() {
				errs = append(errs, e.retire(ctx, slot.Key.Version))
			}
		}
	}
	return errors.Join(errors.Join(errs...), a.release(!keep))
}

// engineOf makes the engine of an arena: it opens transports and joins the run.
func (s *Sidecar) engineOf(a *arena) func(context.Context) (engine, error) {
	return func(ctx context.Context) (engine, error) {
		incarnation := rdma.NewIncarnation()
		transports, end, err := s.cfg.Transports(incarnation)
		if err != nil {
			return nil, err
		}
		cfg := refit.PublisherConfig{
			Host: s.host, Model: s.cfg.Model, Incarnation: incarnation, Rank: a.rank, World: a.req.World, Job: a.req.Job,
			Control: s.cfg.Control, Transports: transports, Slots: a.files.slots, Layout: a.geometry.layout, Keep: s.cfg.Keep,
			CommitTimeout: s.cfg.CommitTimeout, DrainTimeout: s.cfg.DrainTimeout, Metrics: s.cfg.Metrics, Logger: a.log, Tracer: s.cfg.Tracer,
		}
		if s.cfg.Details != nil {
			cfg.Details = tracing.ForRank(s.cfg.Details, a.rank, a.req.World).Tracer(tracing.Scope)
		}
		p, err := refit.NewPublisher(ctx, cfg)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return &snapshots{publisher: p, end: end}, nil
	}
}

// inPlaceOf makes the engine of memory that another process has registered.
func (s *Sidecar) inPlaceOf(a *arena, endpoint *messages.Endpoint) func(context.Context) (engine, error) {
	return func(ctx context.Context) (engine, error) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.CommitTimeout)
		defer cancel()
		p := &inPlace{
			control: s.cfg.Control, rank: a.rank, layout: a.geometry.layout, endpoint: endpoint, commit: s.cfg.CommitTimeout,
			status: func(ctx context.Context, slots []messages.Slot, run uint64) { s.putStatus(ctx, a, slots, run) },
		}
		var err error
		if a.rank == 0 {
			p.record, err = s.cfg.Control.TakeRun(ctx, a.req.Job, a.req.World)
		} else {
			p.record, err = s.cfg.Control.AwaitRun(ctx, a.req.Job)
		}
		if err == nil && p.record.World != a.req.World {
			err = fmt.Errorf("%w: the run has %d ranks, rank %d was told %d", messages.ErrConflict, p.record.World, a.rank, a.req.World)
		}
		if err != nil {
			return nil, fmt.Errorf("join run of job %s as rank %d: %w", a.req.Job, a.rank, err)
		}
		p.keepStatus(renewInterval)
		return p, nil
	}
}

// putStatus publishes what an arena without a refit.Publisher says of itself.
func (s *Sidecar) putStatus(ctx context.Context, a *arena, slots []messages.Slot, run uint64) {
	name := messages.PublisherName(a.rank)
	err := s.cfg.Control.PutStatus(ctx, name, messages.Status{
		Role: messages.RolePublisher, Name: name, Host: rdma.HostName(s.host), Ranks: []int{a.rank}, Updated: s.cfg.Now(), Slots: slots, Job: a.req.Job, Run: run,
	})
	if err != nil && ctx.Err() == nil {
		a.log.Warn("status not published", "error", err)
	}
}
