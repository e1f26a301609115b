package refit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// PublisherConfig says what a publisher is made of. Control, Transports, Slots and Layout are needed.
type PublisherConfig struct {
	Name        string            // in status; default "publisher-<rank>"
	Host        string            // host id; default rdma.HostID
	Incarnation string            // unique to this life of the process
	Model       string            // full name
	Rank, World int               // trainer rank in [0, World)
	Control     *messages.Control // of the model
	Transports  []rdma.Transport  // that serve the slots; owned by the caller
	Slots       []*rdma.Memory    // buffers of one size that versions alternate between; owned by the caller
	Layout      *messages.Layout  // of one slot: one region, as long as a slot
	Job         string            // the launch, the same for all ranks of it and for a rank that is started again

	Keep messages.Keep // which versions stay readable; default: those whose slot is not needed again

	CommitTimeout time.Duration // longest wait for the other ranks' parts of a version; default 10 min
	DrainTimeout  time.Duration // longest wait for the leases on a slot that is needed again; default 10 min

	Logger  *slog.Logger
	Tracer  trace.Tracer
	Details trace.Tracer // of the spans below the publication's own; default Tracer. See tracing.ForRank
	Metrics *tracing.Metrics
}

func (c *PublisherConfig) validate() error {
	switch {
	case c.Control == nil || c.Layout == nil || len(c.Transports) == 0 || len(c.Slots) == 0:
		return fmt.Errorf("control %t, layout %t, %d transports, %d slots: all are needed",
			c.Control != nil, c.Layout != nil, len(c.Transports), len(c.Slots))
	case c.Rank < 0 || c.Rank >= c.World || c.Layout.Rank != c.Rank:
		return fmt.Errorf("rank %d of %d with the layout of rank %d", c.Rank, c.World, c.Layout.Rank)
	case c.Job == "" || c.Incarnation == "":
		return fmt.Errorf("job %q, incarnation %q: both are needed", c.Job, c.Incarnation)
	case len(c.Layout.Regions) != 1:
		return fmt.Errorf("the layout has %d regions, expected 1", len(c.Layout.Regions))
	}
	if err := c.Keep.CheckSlots(len(c.Slots)); err != nil {
		return err
	}
	for i, m := range c.Slots {
		if m.Len() < c.Layout.Regions[0] {
			return fmt.Errorf("slot %d has %d bytes, the layout needs %d", i, m.Len(), c.Layout.Regions[0])
		}
	}
	setDefault(&c.Name, fmt.Sprintf("publisher-%d", c.Rank))
	setDefault(&c.CommitTimeout, 10*time.Minute)
	setDefault(&c.DrainTimeout, 10*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Tracer == nil {
		c.Tracer = noop.Tracer{}
	}
	if c.Details == nil {
		c.Details = c.Tracer
	}
	return setHost(&c.Host)
}

// Publisher publishes versions out of one trainer rank's memory. Each lies in a slot of its own, the oldest version's
// being taken again: with two, a version is read while the next is written, whatever numbers they have. Its methods are
// called by one goroutine.
type Publisher struct {
	cfg      PublisherConfig
	run      messages.RunRecord
	regions  []rdma.Regions
	endpoint *messages.Endpoint

	stop  context.CancelFunc // ends guard
	guard sync.WaitGroup

	mu        sync.Mutex
	numbers   []uint32 // of the slots' regions; nil until they are registered
	slots     []messages.Slot
	claimed   []uint64                // the version that each slot was handed out for; noVersion: none
	published []*messages.Publication // what each slot has committed; nil: nothing that stands
	restoring []*restoration          // of each slot's version; nil: none is under way
}

// NewPublisher registers the slots and joins the job's run: rank 0 takes it, the others wait for it as for a commit.
func NewPublisher(ctx context.Context, cfg PublisherConfig) (*Publisher, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make publisher: %w", err)
	}
	n := len(cfg.Slots)
	p := &Publisher{
		cfg: cfg, stop: func() {},
		slots: make([]messages.Slot, n), claimed: slices.Repeat([]uint64{noVersion}, n), published: make([]*messages.Publication, n), restoring: make([]*restoration, n),
	}
	for i := range p.slots {
		p.slots[i].State = "free"
	}
	if err := p.register(); err != nil {
		return nil, errors.Join(fmt.Errorf("make publisher of rank %d: %w", cfg.Rank, err), p.Close())
	}
	if err := p.join(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("join run of job %s as rank %d: %w", cfg.Job, cfg.Rank, err), p.Close())
	}
	guarded, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	p.guard.Go(func() { p.keepStatus(guarded) })
	p.guard.Go(func() { p.keepPublished(guarded) })
	return p, nil
}

// register serves the slots by all transports.
func (p *Publisher) register() error {
	var described []rdma.RemoteRegion
	rdma.GuardAll(p.cfg.Transports, p.newGate().admit)
	var numbers []uint32
	for _, m := range p.cfg.Slots {
		rs, err := rdma.RegisterAll(p.cfg.Transports, m)
		if err != nil {
			return err
		}
		p.regions, numbers = append(p.regions, rs), append(numbers, rs.ID())
		described = append(described, rs[0].Describe())
	}
	p.mu.Lock()
	p.numbers = numbers
	p.mu.Unlock()
	var err error
	p.endpoint, err = endpoint(p.cfg.Rank, p.cfg.Host, p.cfg.Incarnation, p.cfg.Transports, described)
	return err
}

// sayAfter is how long a wait for rank 0 goes unmentioned.
const sayAfter = time.Second

// join takes the run, or waits for it.
func (p *Publisher) join(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CommitTimeout)
	defer cancel()
	if p.cfg.Rank == 0 {
		p.run, err = p.cfg.Control.TakeRun(ctx, p.cfg.Job, p.cfg.World)
	} else {
		waits := time.AfterFunc(sayAfter, func() {
			p.cfg.Logger.Info("waiting for rank 0 to take the run", "job", p.cfg.Job, "at most", p.cfg.CommitTimeout)
		})
		p.run, err = p.cfg.Control.AwaitRun(ctx, p.cfg.Job)
		waits.Stop()
	}
	if err == nil && p.run.World != p.cfg.World {
		err = fmt.Errorf("the run has %d ranks, this rank was told %d", p.run.World, p.cfg.World)
	}
	return err
}

// Run is the run that the publisher belongs to.
func (p *Publisher) Run() messages.RunRecord { return p.run }

// Key names a version of the publisher's run.
func (p *Publisher) Key(version uint64) messages.Key {
	return messages.Key{Run: p.run.Run, Version: version}
}

// noVersion is the claim of a slot that was never handed out.
const noVersion = math.MaxUint64

// slotOf is the slot that a version was given; -1 where it has none.
func (p *Publisher) slotOf(version uint64) int { return slices.Index(p.claimed, version) }

// Choose is the slot in which a version lies, or else would: a free one, that of the version modulo the number of slots
// before others, or the one whose version is oldest.
func (p *Publisher) Choose(version uint64) int {
	if i := p.slotOf(version); i >= 0 {
		return i
	}
	first, oldest := int(version%uint64(len(p.slots))), 0
	for k := range p.slots {
		i := (first + k) % len(p.slots)
		switch at := p.slot(i).Key; {
		case at.IsZero():
			return i
		case k == 0 || at.Less(p.slot(oldest).Key):
			oldest = i
		}
	}
	return oldest
}

// Memory waits until a slot is free for a version, withdrawing the version that it holds, and hands the slot out to be
// written. The error of a wait that took too long names who still reads.
func (p *Publisher) Memory(ctx context.Context, version uint64) (*rdma.Memory, error) {
	return p.Claim(ctx, version, p.Choose(version))
}

// Claim is Memory where the slot is known: its bytes may have been written already, in an earlier life of this process.
func (p *Publisher) Claim(ctx context.Context, version uint64, i int) (*rdma.Memory, error) {
	if i < 0 || i >= len(p.slots) || version == noVersion {
		return nil, fmt.Errorf("claim slot %d of %d for version %d: out of range", i, len(p.slots), version)
	}
	if held := p.slot(i); !held.Key.IsZero() {
		if err := p.awaitPolicy(ctx, held.Key); err != nil {
			return nil, err
		}
		if err := p.Retire(ctx, held.Key.Version); err != nil {
			return nil, err
		}
	}
	if before := p.slotOf(version); before >= 0 {
		p.claimed[before] = noVersion
	}
	p.claimed[i] = version
	p.setSlot(ctx, i, messages.Slot{State: "filling"})
	return p.cfg.Slots[i], nil
}

// Publish digests the slot of a version, publishes this rank's part and waits for the commit, which any rank may write.
// It may be repeated with the same bytes. A version that was given no slot, or whose slot was given to another one since,
// is refused: see Memory.
func (p *Publisher) Publish(ctx context.Context, version uint64) (*messages.Manifest, error) {
	return p.PublishChange(ctx, version, Change{})
}

// Change says what a version changes, for receivers that serve its base: they copy the rest from there instead of reading
// it. All ranks name the same base. The zero value says nothing; where tiles have digests, receivers find out by themselves.
type Change struct {
	Base    *messages.Ref // the version that the others stand on: Ref of the manifest that its Publish returned
	Sources []string      // names, of this rank's layout, that changed since; empty: none of them did

	Layout *messages.Layout // how the slot's bytes lie, from this version on; nil: as before. One region, no longer than a slot
}

// PublishChange is Publish with what the version changes. The slot holds everything all the same: receivers that serve
// another version read it whole.
func (p *Publisher) PublishChange(ctx context.Context, version uint64, change Change) (*messages.Manifest, error) {
	ctx, end := p.underVersion(ctx, version)
	start := time.Now()
	m, err := p.publish(ctx, version, change)
	p.cfg.Metrics.Published(p.cfg.Model, time.Since(start), p.cfg.Layout.Nbytes(), err)
	end(err)
	if err != nil {
		return nil, fmt.Errorf("publish run %d version %d of rank %d: %w", p.run.Run, version, p.cfg.Rank, err)
	}
	return m, nil
}

func (p *Publisher) publish(ctx context.Context, version uint64, change Change) (*messages.Manifest, error) {
	i, key := p.slotOf(version), p.Key(version)
	if i < 0 {
		return nil, errors.New("it has no slot: Memory gives it one")
	}
	if err := p.layOut(change.Layout); err != nil {
		return nil, err
	}
	digests, err := p.digest(ctx, i)
	if err != nil {
		return nil, err
	}
	p.setSlot(ctx, i, messages.Slot{Key: key, State: "published"})
	publication := messages.Publication{
		Key: key, Rank: p.cfg.Rank, World: p.cfg.World, Regions: []uint32{p.regions[i].ID()},
		Layout: p.cfg.Layout, Endpoint: p.endpoint, Tiles: digests,
		Base: change.Base, Changed: change.Sources,
	}
	err = p.traced(ctx, "upload", func(ctx context.Context) error { return p.cfg.Control.Publish(ctx, publication) })
	if err != nil {
		return nil, err
	}
	var m *messages.Manifest
	err = p.traced(ctx, "commit", func(ctx context.Context) (err error) {
		m, err = p.commit(ctx, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.cfg.Metrics.Served(p.cfg.Model, key.Run, key.Version, time.Now())
	p.setPublished(i, &publication)
	p.setSlot(ctx, i, messages.Slot{Key: key, State: "committed"})
	return m, nil
}

// layOut begins a new generation of the layout. Versions that stand keep theirs: it is in their publications.
func (p *Publisher) layOut(l *messages.Layout) error {
	if l == nil {
		return nil
	}
	if l.Rank != p.cfg.Rank || len(l.Regions) != 1 || l.Regions[0] > p.cfg.Slots[0].Len() {
		return fmt.Errorf("a layout of rank %d with regions of %v bytes doesn't fit slots of %d", l.Rank, l.Regions, p.cfg.Slots[0].Len())
	}
	p.cfg.Layout = l
	return nil
}

// commit waits for all ranks' parts. A version whose other ranks don't come in time is ended by name, so that nobody
// waits for it any more; the error names them.
func (p *Publisher) commit(ctx context.Context, key messages.Key) (*messages.Manifest, error) {
	bounded, cancel := context.WithTimeout(ctx, p.cfg.CommitTimeout)
	defer cancel()
	m, err := p.cfg.Control.Commit(bounded, key, p.cfg.World)
	if err == nil || bounded.Err() == nil || ctx.Err() != nil {
		return m, err
	}
	reason := fmt.Sprintf("rank %d waited %v: %v", p.cfg.Rank, p.cfg.CommitTimeout, err)
	abandoned := p.cfg.Control.Abandon(ctx, key, reason[:min(len(reason), maxReason)])
	if errors.Is(abandoned, messages.ErrConflict) { // a commit was faster: confirm it
		bounded, cancel := context.WithTimeout(ctx, p.cfg.CommitTimeout)
		defer cancel()
		return p.cfg.Control.Commit(bounded, key, p.cfg.World)
	}
	return nil, errors.Join(fmt.Errorf("no commit within %v: %w", p.cfg.CommitTimeout, err), abandoned)
}

// maxReason bounds the reason for which a version is ended, in bytes.
const maxReason = 400

// digest makes the tile digests of a slot; nil where the layout has no grid.
func (p *Publisher) digest(ctx context.Context, slot int) (made *messages.Tiles, err error) {
	if p.cfg.Layout.Grid == nil {
		return nil, nil
	}
	err = p.traced(ctx, "digest", func(context.Context) error {
		sums, err := tileTable(p.cfg.Layout).DigestAll(p.cfg.Slots[slot].Bytes())
		made = &messages.Tiles{Digests: sums}
		return err
	})
	return made, err
}

// Retire withdraws a version and waits until nobody reads it: then its slot is free, unless it holds another version by
// now. It may be repeated.
func (p *Publisher) Retire(ctx context.Context, version uint64) error {
	i, key := p.slotOf(version), p.Key(version)
	holds := i >= 0 && p.slot(i).Key == key
	if holds {
		p.setPublished(i, nil)
		p.setSlot(ctx, i, messages.Slot{Key: key, State: "retiring"})
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DrainTimeout)
	defer cancel()
	if err := p.cfg.Control.Retire(ctx, key, p.cfg.Rank); err != nil {
		return fmt.Errorf("retire run %d version %d of rank %d: %w", key.Run, version, p.cfg.Rank, err)
	}
	if holds {
		p.setSlot(ctx, i, messages.Slot{State: "drained"})
	}
	p.cfg.Logger.Info("drained", "key", key.String())
	return nil
}

func (p *Publisher) slot(i int) messages.Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots[i]
}

// setSlot changes what a slot is said to hold, and publishes the status.
func (p *Publisher) setSlot(ctx context.Context, i int, s messages.Slot) {
	p.mu.Lock()
	p.slots[i] = s
	p.mu.Unlock()
	p.putStatus(ctx)
}

func (p *Publisher) putStatus(ctx context.Context) {
	if err := p.cfg.Control.PutStatus(ctx, p.cfg.Name, p.Status()); err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("status not published", "error", err)
	}
}

// Status is what the publisher says of itself.
func (p *Publisher) Status() messages.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return messages.Status{
		Role: messages.RolePublisher, Name: p.cfg.Name, Host: rdma.HostName(p.cfg.Host), Ranks: []int{p.cfg.Rank},
		Updated: time.Now(), Slots: append([]messages.Slot(nil), p.slots...), Job: p.cfg.Job, Run: p.run.Run,
		Keep: p.cfg.Keep.String(),
	}
}

// Close withdraws the slots from the transports; readers are refused from now on. Idempotent.
func (p *Publisher) Close() error {
	p.stop()
	p.guard.Wait()
	var errs []error
	for _, rs := range p.regions {
		errs = append(errs, rs.Close())
	}
	p.regions = nil
	return errors.Join(errs...)
}

// underVersion opens the span of this rank's publication in the version's trace. Rank 0 makes the trace's root above it.
func (p *Publisher) underVersion(ctx context.Context, version uint64) (context.Context, func(error)) {
	attrs := trace.WithAttributes(
		tracing.AttrModel.String(p.cfg.Model), tracing.Uint64(tracing.AttrRun, p.run.Run),
		tracing.Uint64(tracing.AttrVersion, version), tracing.AttrRank.Int(p.cfg.Rank), tracing.AttrWorld.Int(p.cfg.World))
	var root trace.Span
	if p.cfg.Rank == 0 {
		ctx, root = tracing.StartVersionRoot(ctx, p.cfg.Tracer, p.run.Nonce, version, "refit version", attrs)
	} else {
		ctx = tracing.JoinVersion(ctx, p.run.Nonce, version)
	}
	ctx, span := p.cfg.Tracer.Start(ctx, "publish", attrs)
	return ctx, func(err error) {
		endSpan(span, err)
		if root != nil {
			endSpan(root, err)
		}
	}
}

// traced runs one step under a span of its own.
func (p *Publisher) traced(ctx context.Context, name string, step func(context.Context) error) error {
	ctx, span := p.cfg.Details.Start(ctx, name)
	err := step(ctx)
	endSpan(span, err)
	return err
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
