package refit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// Receiver stages and applies versions on one host, for one or more destination ranks. Its methods may be called from
// several goroutines; at most one version is staged at a time.
type Receiver struct {
	cfg     ReceiverConfig
	life    string // drawn anew at each start
	arenas  *arena.Set
	plans   plans
	peers   *peers
	health  *rdma.Health // of the source ranks, over versions
	staging *ring
	edges   *ring        // for tiles that are read whole to verify a part
	lent    atomic.Int64 // bytes of both rings in use

	staged  chan struct{} // holds a token while a version is being staged
	applied chan struct{} // holds a token while a version is being applied
	noted   chan struct{} // the status has changed

	mu      sync.Mutex
	serving messages.Key
	holds   map[*arena.Slot]*messages.Version // what is known exactly of slots that are sealed
	before  trace.SpanContext                 // of the cycle that was applied last
	status  messages.Status
	closed  bool

	verified   bool   // what serves by name was verified, and nothing else is known of it
	distrusted bool   // what serves by name was found damaged, and is to be replaced
	doubtful   uint64 // the round whose end isn't known; under the applied token
}

// batchBytes is what is read in one go, about. A batch is verified right after it was read, so the smaller it is the more
// of it is still in the cache then; but each cut between batches goes through a row of tiles, which is then read twice.
const batchBytes = 16 << 20

// NewReceiver reserves the arenas and adopts what an earlier life left in them. Errors: see arena.Open.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make receiver: %w", err)
	}
	r := &Receiver{
		cfg: cfg, life: rdma.NewIncarnation(), staged: make(chan struct{}, 1), applied: make(chan struct{}, 1), noted: make(chan struct{}, 1),
		peers: newPeers(cfg.Transports, cfg.Name, cfg.Logger), holds: map[*arena.Slot]*messages.Version{},
	}
	r.health = r.newHealth()
	if err := r.openArenas(); err != nil {
		return nil, as(NoRoom, fmt.Errorf("make receiver %s: %w", cfg.Name, err))
	}
	slotBytes := max(1<<20, cfg.StagingBytes/maxStagingSlots)
	r.staging = newRing(cfg.StagingBytes, slotBytes)
	r.edges = newRing(edgeSlots*edgeBytes, edgeBytes)
	r.plans = plans{dests: r.cfg.Dests, opts: plan.Options{
		AllowNarrowing: cfg.AllowNarrowing, StagingBytes: slotBytes, BatchBytes: batchBytes,
	}, likely: r.likelyTransport, costs: cfg.CostsOf}
	if s := r.arenas.Serving(); s != nil && s.Holds().Model == cfg.Model { // another model's runs say nothing of this one's
		r.serving = messages.Key{Run: s.Holds().Run, Version: s.Holds().Version}
	}
	r.status = r.firstStatus()
	for _, p := range Policies {
		r.cfg.Metrics.Expect(r.cfg.Model, string(p.Class))
	}
	r.countArenas()
	r.trust()
	return r, nil
}

// openArenas reserves the arenas and places the parameters of every destination in them.
func (r *Receiver) openArenas() error {
	cfg := arena.Config{Root: r.cfg.ArenaRoot, Slots: r.cfg.Arenas, HugePages: r.cfg.HugePages, Logger: r.cfg.Logger, BlockBytes: r.cfg.blockBytes}
	for i := range r.cfg.Dests {
		cfg.Ranks = append(cfg.Ranks, arenaRank(&r.cfg.Dests[i]))
	}
	set, err := arena.Open(cfg)
	if err != nil {
		return err
	}
	r.arenas = set
	r.cfg.Dests = slices.Clone(r.cfg.Dests)
	for i := range r.cfg.Dests {
		d := &r.cfg.Dests[i]
		d.Params = slices.Clone(d.Params)
		if err := placeParams(d, set.Offsets(i)); err != nil {
			return errors.Join(err, set.Close())
		}
	}
	return nil
}

// Serving is the version that was applied last, zero before the first.
func (r *Receiver) Serving() messages.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serving
}

// ArenaRoot is the folder in which `current` leads to the version that serves.
func (r *Receiver) ArenaRoot() string { return r.arenas.Root() }

// ErrInUse is returned by Close while a version is being staged or applied. Nothing has changed; end it, and close again.
var ErrInUse = errors.New("a version is being staged or applied")

// Close ends the connections and unmaps the arenas; what serves stays on its file system. Versions that are staged then
// can't be applied any more. Idempotent. Errors: ErrInUse.
func (r *Receiver) Close() error {
	if r.isClosed() {
		return nil
	}
	for _, token := range []chan struct{}{r.staged, r.applied} {
		select {
		case token <- struct{}{}:
			defer func() { <-token }()
		default:
			return fmt.Errorf("close receiver %s: %w", r.cfg.Name, ErrInUse)
		}
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	if err := errors.Join(r.peers.close(), r.staging.close(), r.edges.close(), r.arenas.Close()); err != nil {
		return fmt.Errorf("close receiver %s: %w", r.cfg.Name, err)
	}
	return nil
}

func (r *Receiver) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// ranks lists the destination ranks.
func (r *Receiver) ranks() []int {
	ranks := make([]int, len(r.cfg.Dests))
	for i := range r.cfg.Dests {
		ranks[i] = r.cfg.Dests[i].Rank
	}
	return ranks
}

// files lists the files of a slot, in the order of the destinations.
func (r *Receiver) files(slot *arena.Slot) []string {
	files := make([]string, len(r.cfg.Dests))
	for i := range files {
		files[i] = slot.Path(i)
	}
	return files
}

// connectAll reaches every rank that a plan reads from, all at once, and counts the transports taken.
func (r *Receiver) connectAll(ctx context.Context, v *messages.Version, p *plan.Plan) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Stall)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	taken := map[string]int{}
	var errs []error
	for rank := range queuesOf(p) {
		if r.health.Avoid(rank) {
			continue // its probe connects, if it comes to that
		}
		wg.Go(func() {
			_, transport, err := r.peers.get(ctx, v, rank)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			taken[transport]++
		})
	}
	wg.Wait()
	return taken, errors.Join(errs...)
}

// transportList writes which transports were taken for how many ranks: "local 3, tcp 1".
func transportList(taken map[string]int) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %d", name, taken[name])
	}
	return text
}
