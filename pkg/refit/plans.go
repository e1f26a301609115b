package refit

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
)

// planKey names everything that a plan depends on besides the receiver itself: the layouts of all ranks, and by which
// transports the ranks are likely to be reached.
type planKey [sha256.Size]byte

func keyOf(m *messages.Manifest, transports []string) planKey {
	h := sha256.New()
	for i := range m.Ranks {
		h.Write(m.Ranks[i].Layout[:])
		h.Write([]byte(transports[i] + "\n"))
	}
	return planKey(h.Sum(nil))
}

// planned is a plan with what else follows from the layouts alone.
type planned struct {
	plan     *plan.Plan
	replicas []replica
	tiles    tileIndex
}

// digests finds the digests of a version that has these layouts.
func (p *planned) digests(v *messages.Version) *digests { return &digests{p.tiles, v} }

// plans keeps the plans of the layouts seen last. A version whose layouts are known is not planned anew.
type plans struct {
	dests  []plan.Dest
	opts   plan.Options
	likely func(v *messages.Version, rank int) string // the transport by which a rank will be reached, "" if none
	costs  func(transport string) plan.Costs          // nil: all cost the same

	mu    sync.Mutex
	order []planKey // oldest first
	byKey map[planKey]*planned
}

// maxPlans is how many generations of layouts are kept: a trainer that restarts with another world size and comes back.
const maxPlans = 4

// get finds or makes the plan for a version; cold says that it was made.
func (p *plans) get(v *messages.Version) (found *planned, cold bool, err error) {
	transports := p.transports(v)
	key := keyOf(v.Manifest, transports)
	p.mu.Lock()
	defer p.mu.Unlock()
	if found = p.byKey[key]; found != nil {
		return found, false, nil
	}
	if found, err = p.make(v, transports); err != nil {
		return nil, true, err
	}
	if len(p.order) == maxPlans {
		delete(p.byKey, p.order[0])
		p.order = p.order[1:]
	}
	if p.byKey == nil {
		p.byKey = map[planKey]*planned{}
	}
	p.byKey[key] = found
	p.order = append(p.order, key)
	return found, true, nil
}

// transports says how each rank will be reached, where that makes a difference.
func (p *plans) transports(v *messages.Version) []string {
	names := make([]string, len(v.Ranks))
	if p.costs != nil {
		for rank := range names {
			names[rank] = p.likely(v, rank)
		}
	}
	return names
}

func (p *plans) make(v *messages.Version, transports []string) (*planned, error) {
	table, err := merge(v)
	if err != nil {
		return nil, fmt.Errorf("merge the layouts of %d ranks: %w", len(v.Ranks), err)
	}
	opts := p.opts
	if p.costs != nil {
		opts.CostsOf = func(rank int) plan.Costs { return p.costs(transports[rank]) }
	}
	made, err := plan.New(table, p.dests, opts)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	index, err := newTileIndex(v)
	if err != nil {
		return nil, err
	}
	return &planned{plan: made, replicas: findReplicas(table), tiles: index}, nil
}
