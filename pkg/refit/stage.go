package refit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// ErrBusy is returned by Stage while another version is being staged. Nothing has changed.
var ErrBusy = errors.New("another version is being staged")

// ErrClosed is returned by Stage and Apply after Close. Nothing has changed.
var ErrClosed = errors.New("the receiver is closed")

// stateStaged is what the status says of a version that waits for Apply.
const stateStaged = "staged"

// Staged is a version that lies complete and verified in an arena that nothing serves from. It ends by Apply or Release.
type Staged struct {
	r     *Receiver
	key   messages.Key
	slot  *arena.Slot
	cycle *tracing.Cycle
	owner bool            // the cycle was started here, not by an outer caller
	order *messages.Order // the operator's order to go back to this version; nil: forwards
	skips []messages.Key  // older versions that were never staged, since this one came
	stats Stats

	mu   sync.Mutex
	done bool
}

// Stats is what staging a version took. All are bytes but Retries and Ranks.
type Stats struct {
	Needed     int64 // of shards, each byte counted once
	Wire       int64 // read over transports, repetitions and the edges of slices included
	Brought    int64 // of Wire, what was needed of shards
	Staged     int64 // written to the arenas, what was kept left out
	Saved      int64 // of shards, beyond Needed: not read, since the version that serves has the same
	Resumed    int64 // of Needed: not read, since an earlier attempt or life had brought it into the arena
	Kept       int64 // of the arenas: copied from the one that serves
	Verified   int64 // of Brought, checked against a digest
	Retries    int64 // batches that were read again
	Ranks      int   // trainer ranks read from
	Transports string
	Cold       bool // the plan had to be made
}

// Key is the version.
func (s *Staged) Key() messages.Key { return s.key }

// Stats is what staging took.
func (s *Staged) Stats() Stats { return s.stats }

// Files lists the arena files of the receiver's ranks, in the order of its destinations.
func (s *Staged) Files() []string { return s.r.files(s.slot) }

// Stage brings exactly the version key into an arena that nothing serves from. On error nothing that serves has
// changed, and the error is a *Failure. A context that carries a remote span of the version's trace makes the cycle
// part of that trace. Errors: ErrBusy, or a *Failure of any class but the installers'.
func (r *Receiver) Stage(ctx context.Context, key messages.Key) (*Staged, error) {
	return r.begin(ctx, &Staged{r: r, key: key})
}

// StageRollback is Stage for an operator's order to go back to an older version. Only by it is a version staged that is
// not newer than the one that serves.
func (r *Receiver) StageRollback(ctx context.Context, order *messages.Order) (*Staged, error) {
	return r.begin(ctx, &Staged{r: r, key: order.To, order: order})
}

// begin opens the cycle of a stage and closes it when the stage fails.
func (r *Receiver) begin(ctx context.Context, s *Staged) (*Staged, error) {
	select {
	case r.staged <- struct{}{}:
		defer func() { <-r.staged }()
	default:
		return nil, &Failure{Class: Busy, Op: "stage", Model: r.cfg.Model, Key: s.key, Err: ErrBusy}
	}
	if r.isClosed() {
		return nil, &Failure{Class: Internal, Op: "stage", Model: r.cfg.Model, Key: s.key, Err: ErrClosed}
	}
	ctx, own := tracing.Start(r.joinTrace(ctx, s.key), r.cycleOptions(s.key))
	s.owner, s.cycle = own != nil, tracing.FromContext(ctx)
	if len(s.skips) > 0 {
		s.cycle.Event(tracing.EventSkipped, tracing.AttrSkipped.String(keyList(s.skips)))
	}
	finished := false
	defer func() { // also on a panic below
		if !finished {
			if s.slot != nil {
				r.arenas.Release(s.slot)
			}
			own.Finish(tracing.OutcomeAbandoned, nil)
		}
	}()
	err := r.stage(ctx, s)
	finished = true
	if err == nil {
		r.note(func(st *messages.Status) { st.Staging, st.StageState = s.key, stateStaged })
		return s, nil
	}
	failure := &Failure{Class: classOf(err), Op: "stage", Model: r.cfg.Model, Key: s.key, Err: err}
	own.Finish(outcomeOf(failure.Class), failure)
	r.noteFailure(failure)
	return nil, failure
}

// joinTrace makes what follows part of the version's trace, also when the caller knows nothing of it.
func (r *Receiver) joinTrace(ctx context.Context, key messages.Key) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() || tracing.FromContext(ctx) != nil {
		return ctx
	}
	if run, found, err := r.cfg.Control.Run(ctx); err == nil && found && run.Run == key.Run {
		return tracing.JoinVersion(ctx, run.Nonce, key.Version)
	}
	return ctx
}

func outcomeOf(c Class) tracing.Outcome {
	if c == Superseded || c == Gone {
		return tracing.OutcomeSuperseded
	}
	return tracing.OutcomeFailed
}

func (r *Receiver) cycleOptions(key messages.Key) tracing.CycleOptions {
	o := tracing.CycleOptions{
		Model: r.cfg.Model, Run: key.Run, Version: key.Version, Rank: -1,
		Tracer: r.cfg.Tracer, Logger: r.cfg.Logger, Metrics: r.cfg.Metrics, Lines: r.cfg.Lines,
	}
	r.mu.Lock()
	if r.before.IsValid() {
		o.Links = []trace.Link{{SpanContext: r.before}}
	}
	r.mu.Unlock()
	if len(r.cfg.Dests) == 1 {
		o.Rank = r.cfg.Dests[0].Rank
		if r.cfg.TP > 0 {
			o.TP = tracing.Parallel{Rank: o.Rank, Size: r.cfg.TP}
		}
	}
	return o
}

// stage does the work of Stage under the cycle in ctx.
func (r *Receiver) stage(ctx context.Context, s *Staged) (err error) {
	ctx, phase := s.cycle.Phase(ctx, tracing.PhaseStage)
	defer func() { phase.End(err) }()
	if err := r.checkOrder(s); err != nil {
		return err
	}
	r.note(func(st *messages.Status) { st.Staging, st.StageState = s.key, "assembling" })
	defer r.note(func(st *messages.Status) { st.Staging, st.StageState = messages.Key{}, "" })

	var lease *messages.Lease
	defer func() { // also on a panic below: a lease renews itself for ever
		if lease != nil {
			r.giveBack(ctx, s, lease)
			phase.Event(tracing.EventLease, tracing.AttrLease.String(leaseEnd(err)))
		}
	}()
	version, err := r.discover(ctx, s, &lease)
	if err != nil {
		return err
	}
	ctx, cancel := underLease(ctx, lease)
	defer cancel()
	r.meet(version)
	found, err := r.planFor(ctx, s, version)
	if err != nil {
		return err
	}
	if err := r.checkSources(ctx, s, version, found); err != nil {
		return err
	}
	r.recall(ctx)
	found, base, err := r.restrict(ctx, s, version, found)
	if err != nil {
		return err
	}
	whole, err := r.setUp(ctx, s, version, found)
	switch {
	case err != nil:
		return err
	case whole:
		return r.takeOver(s, version, found)
	}
	if err := r.pull(ctx, s, version, found, base, lease); err != nil {
		r.arenas.Release(s.slot)
		return err
	}
	return nil
}

// checkOrder refuses to go backwards, unless an operator ordered it.
func (r *Receiver) checkOrder(s *Staged) error {
	serving := r.Serving()
	if s.order != nil || serving.Less(s.key) || serving == s.key {
		return nil
	}
	return as(Backwards, fmt.Errorf("run %d version %d serves, which is newer", serving.Run, serving.Version))
}

// discover claims the version and reads all that it consists of. The lease is the caller's to give back, also on error.
func (r *Receiver) discover(ctx context.Context, s *Staged, l **messages.Lease) (v *messages.Version, err error) {
	ctx, span := s.cycle.Stage(ctx, tracing.ControlDiscovery)
	defer func() { span.End(err) }()
	*l, err = r.cfg.Control.AcquireLease(ctx, s.key, r.cfg.Name)
	if err != nil {
		return nil, controlError("claim the version", err)
	}
	span.Event(tracing.EventLease, tracing.AttrLease.String("acquired"))
	r.cfg.Metrics.Leases(r.cfg.Model, 1)
	if v, err = r.cfg.Control.Assemble(ctx, s.key); err != nil {
		return nil, controlError("assemble the version", err)
	}
	return v, nil
}

// controlError marks an error of the control plane with its class.
func controlError(what string, err error) error {
	class := ControlPlane
	for _, k := range []struct {
		kind  error
		class Class
	}{
		{context.Canceled, Cancelled},
		{messages.ErrLeaseLost, LeaseLost},
		{messages.ErrContradiction, Torn},
		{messages.ErrMalformed, Torn}, // what is stored once is no better the next time
		{messages.ErrSchema, Torn},
		{messages.ErrLimit, Torn},
		{messages.ErrRetired, Gone},
		{messages.ErrNotCommitted, Gone},
		{messages.ErrAbandoned, Gone},
		{messages.ErrFenced, Superseded},
	} {
		if errors.Is(err, k.kind) {
			class = k.class
			break
		}
	}
	return as(class, fmt.Errorf("%s: %w", what, err))
}

// errLeaseLost is the cause of a context that ended with its lease.
var errLeaseLost = errors.New("the lease on the version was lost")

// underLease ends with the lease, and says so.
func underLease(ctx context.Context, l *messages.Lease) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-l.Lost():
			cancel(as(LeaseLost, fmt.Errorf("%w: %w", errLeaseLost, l.Err())))
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); cancel(nil) }
}

// leaseEnd says how a stage's lease ended: lost, if that is what ended the stage.
func leaseEnd(err error) string {
	if err != nil && classOf(err) == LeaseLost {
		return "lost"
	}
	return "released"
}

// giveBack releases a lease, also when the caller's context has ended.
func (r *Receiver) giveBack(ctx context.Context, s *Staged, l *messages.Lease) {
	_, span := s.cycle.Stage(ctx, tracing.ControlDiscovery)
	defer span.End(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Stall)
	defer cancel()
	r.cfg.Metrics.Leases(r.cfg.Model, 0)
	if err := l.Release(ctx); err != nil {
		r.cfg.Logger.Warn("lease not given back; it expires by itself", "key", l.Key().String(), "error", err)
	}
}

// planFor finds or makes the plan.
func (r *Receiver) planFor(ctx context.Context, s *Staged, v *messages.Version) (found *planned, err error) {
	r.note(func(st *messages.Status) { st.StageState = "planning" })
	_, span := s.cycle.Stage(ctx, tracing.TransferPlanning)
	defer func() { span.End(err) }()
	found, s.stats.Cold, err = r.plans.get(v)
	if err != nil {
		return nil, as(PlanRefused, err)
	}
	s.cycle.SetCold(s.stats.Cold)
	result := tracing.PlanRebind // addresses are this version's own in any case
	if s.stats.Cold {
		result = tracing.PlanMiss
	}
	r.cfg.Metrics.Plan(r.cfg.Model, result)
	return found, nil
}

// restrict leaves out of the plan what the version that serves has already. Digests must have been checked.
func (r *Receiver) restrict(ctx context.Context, s *Staged, v *messages.Version, whole *planned) (found *planned, b *base, err error) {
	_, span := s.cycle.Stage(ctx, tracing.TransferPlanning)
	defer func() { span.End(err) }()
	if found, b, err = r.partial(v, whole, r.cfg.Logger); err != nil {
		return nil, nil, err
	}
	stats := found.plan.Stats()
	s.stats.Needed, s.stats.Staged, s.stats.Ranks = stats.Needed, stats.Written, stats.Ranks
	s.stats.Saved, s.stats.Kept = stats.Saved, stats.Kept
	span.Set(tracing.AttrSegments.Int64(stats.Segments))
	return found, b, nil
}

// checkSources refuses versions whose ranks contradict each other.
func (r *Receiver) checkSources(ctx context.Context, s *Staged, v *messages.Version, found *planned) (err error) {
	_, span := s.cycle.Stage(ctx, tracing.SourcePreparation)
	defer func() { span.End(err) }()
	digests := found.digests(v)
	if err := digests.check(); err != nil {
		return err
	}
	return checkReplicas(found.replicas, digests)
}

// setUp takes an arena and connects to all ranks, unless the arena holds the whole version already.
func (r *Receiver) setUp(ctx context.Context, s *Staged, v *messages.Version, found *planned) (whole bool, err error) {
	ctx, span := s.cycle.Stage(ctx, tracing.SetupRegistration)
	defer func() { span.End(err) }()
	if whole, err = r.acquire(s, v); err != nil || whole {
		return whole, err
	}
	taken, err := r.connectAll(ctx, v, found.plan)
	if err != nil {
		// A rank that can't be reached may have replicas: the pull decides. It is told here because it costs time there.
		r.cfg.Logger.Warn("not every source can be reached", "key", s.key.String(), "error", err)
		err = nil
	}
	s.stats.Transports = transportList(taken)
	span.Set(tracing.AttrTransport.String(s.stats.Transports))
	return false, nil
}

// pull reads, verifies, transforms and seals. What the base has is copied while the rest is read.
func (r *Receiver) pull(ctx context.Context, s *Staged, v *messages.Version, found *planned, b *base, lease *messages.Lease) (err error) {
	r.note(func(st *messages.Status) { st.StageState = "reading" })
	u := &pull{r: r, version: v, slot: s.slot, checks: newVerifier(v, found), cpu: make(chan struct{}, r.cfg.Workers)}
	_, u.verify = s.cycle.StageIdle(ctx, tracing.ReceiveSync)
	_, u.transform = s.cycle.StageIdle(ctx, tracing.Transformation)
	// Constants come first: a block that has some, such as the end of a padded vocabulary, is whole with its last byte that is
	// read. Were they last, all such blocks would be read again by the next life of a receiver that is cut off before.
	done := u.transform.Work()
	err = u.fill(found.plan)
	done()
	if err == nil {
		wireCtx, wire := s.cycle.Stage(ctx, tracing.WireTransfer)
		u.wire = wire
		err = u.run(wireCtx, found.plan, b)
		wire.End(err)
	}
	u.transform.End(err)
	if err == nil {
		done := u.verify.Work()
		err = r.seal(s, u, lease)
		done()
	}
	if err == nil {
		r.remember(s.slot, v)
	}
	u.verify.End(err)
	if u.arenaGivenUp() {
		err = errors.Join(err, r.arenas.Quarantine(s.slot))
	}
	return err
}

// seal checks what must hold for the whole version, and makes the arena files valid.
func (r *Receiver) seal(s *Staged, u *pull, lease *messages.Lease) error {
	s.stats.Wire, s.stats.Retries = u.sums.wire.Load(), u.sums.retries.Load()
	s.stats.Brought, s.stats.Verified = u.sums.brought.Load(), u.sums.verified.Load()
	s.stats.Resumed = u.sums.resumed.Load()
	s.cycle.SetSizes(s.stats.sizes())
	if !lease.Valid() {
		return as(LeaseLost, fmt.Errorf("%w while bytes were read", errLeaseLost))
	}
	// What an earlier attempt brought counts like what this one did: else a version that is refused would pass the next time.
	all := share{s.stats.Brought + s.stats.Resumed, s.stats.Verified + u.sums.vouched.Load()}
	if err := all.atLeast(r.cfg.VerifyFloor); err != nil {
		return err
	}
	return r.arenas.Seal(s.slot, r.labelOf(s.key))
}

// sizes are the record's byte counts of a version that is staged and not installed.
func (s *Stats) sizes() tracing.Sizes {
	return tracing.Sizes{
		NeededBytes: s.Needed, WireBytes: s.Wire, VerifiedBytes: s.Verified, StagedBytes: s.Brought, SavedBytes: s.Saved + s.Resumed,
	}
}

// share is how much of what was brought was verified, in bytes.
type share struct{ brought, verified int64 }

func (s *share) add(brought, verified int64) {
	s.brought += brought
	s.verified += verified
}

// atLeast refuses a share below the floor. Nothing brought is nothing unverified.
func (s *share) atLeast(floor float64) error {
	if s.brought == 0 || float64(s.verified) >= floor*float64(s.brought) {
		return nil
	}
	return as(Unverified, fmt.Errorf("%d of %d bytes brought were verified (%.1f %%), at least %.1f %% are asked for",
		s.verified, s.brought, 100*float64(s.verified)/float64(s.brought), 100*floor))
}
