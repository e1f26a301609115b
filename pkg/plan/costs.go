package plan

import "slices"

// Costs weighs the shapes that a read can take, in nanoseconds. The zero value means CostsStrided.
//
// It is a plain struct: who has measured a transport fills in what it knows. A measurement of α seconds for
// each contiguous run and β seconds for each byte, as refitctl bench makes it, is
//
//	c := plan.CostsStrided             // or CostsFlat, for a transport that takes a descriptor for each run
//	c.PerRun, c.PerByte = α*1e9, β*1e9
type Costs struct {
	PerSegment    float64 // posting one segment
	PerRun        float64 // each contiguous run of a segment, on the wire side
	PerByte       float64 // each byte that crosses
	PerStaged     float64 // each byte that is scattered out of staging
	PerScatterRun float64 // each contiguous run of a scatter
}

// Presets, by transport. What they rest on is in docs/planner.md; only their ratios matter to a plan.
var (
	// CostsStrided suits transports that carry strided segments over sockets (tcp): a run costs a small copy.
	CostsStrided = Costs{PerSegment: 2000, PerRun: 15, PerByte: 0.5, PerStaged: 0.15, PerScatterRun: 4}

	// CostsLocal suits memory of the same host: a read is a copy, staging is another one.
	CostsLocal = Costs{PerSegment: 300, PerRun: 15, PerByte: 0.15, PerStaged: 0.15, PerScatterRun: 4}

	// CostsFlat suits transports that need one descriptor for each run, over memory or a fast card (nixl).
	CostsFlat = Costs{PerSegment: 1000, PerRun: 5000, PerByte: 0.15, PerStaged: 0.15, PerScatterRun: 4}

	// CostsFlatTCP suits the same over sockets (nixl whose agents reach each other by TCP only).
	CostsFlatTCP = Costs{PerSegment: 1000, PerRun: 5000, PerByte: 1.7, PerStaged: 0.15, PerScatterRun: 4}
)

// prices returns what reads from each rank of a table cost.
func (o *Options) prices(t *Table) []Costs {
	out := make([]Costs, len(t.ranks))
	for i := range out {
		out[i] = o.Costs
		if o.CostsOf == nil {
			continue
		}
		if c := o.CostsOf(t.ranks[i].rank); c != (Costs{}) {
			out[i] = c
		}
	}
	return out
}

// price sets the costs that slot i is planned with. When its holders are reached at different costs, those
// stay that serve it most cheaply; the others remain for rerouting.
func (b *builder) price(i uint32) {
	from := b.s.slots[i].from
	b.costs = b.prices[from[0].rank]
	if !slices.ContainsFunc(from, func(h holder) bool { return b.prices[h.rank] != b.costs }) {
		return
	}
	whole := b.s.slots[i].box
	var tried []Costs
	best, least := b.costs, -1.0
	for _, h := range from {
		b.costs = b.prices[h.rank]
		if slices.Contains(tried, b.costs) {
			continue
		}
		tried = append(tried, b.costs)
		cost := 0.0
		for _, g := range b.groups(i, &whole, b.cutHits(i, &whole, nil)) {
			cost += g.cost
		}
		if least < 0 || cost < least {
			best, least = b.costs, cost
		}
	}
	b.costs = best
	b.t.holders[i] = slices.DeleteFunc(slices.Clone(from), func(h holder) bool { return b.prices[h.rank] != best })
}
