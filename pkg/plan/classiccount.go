package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan/view"
)

// ClassicCounts is what the reference planner (ModelExpress, Python) says about its own plan of one
// destination. It exists to be compared with. Where the reference is wrong its counts are wrong here too:
// it reads replicas and overlaps once for each shard, says nothing of holes, and gives up on views that
// are not permuted boxes.
type ClassicCounts struct {
	ExactDescriptorCount int64 // contiguous runs of all copies that it can plan
	ExactBytes           int64 // bytes of those
	DescriptorCount      int64 // contiguous runs after full pulls
	BytesPlanned         int64 // bytes of those
	Sessions             []int // source ranks it reads from, ascending
	DescriptorSavings    int64
	ExtraWireBytes       int64
	Fallback             []string // sources that it can't plan, in order of first mention
	FullPulls            []string // sources pulled whole, in order of first mention
	Unbounded            []string // sources with too many runs that can't be pulled whole
	Converts             int      // copies staged because the types differ
}

// CountClassic applies the reference's rules to one destination. maxSegments is the number of runs of a
// copy beyond which its source is pulled whole.
func CountClassic(t *Table, d *Dest, maxSegments int) (*ClassicCounts, error) {
	if maxSegments < 1 {
		return nil, fmt.Errorf("plan: at most %d segments per copy: must be at least 1", maxSegments)
	}
	c := classicCounter{t: t, d: d, max: int64(maxSegments), seen: map[string]bool{}, ranks: map[int]bool{}, sources: map[uint32]*classicSource{}}
	for i := range d.Copies {
		if k := d.Copies[i].Param; k < 0 || k >= len(d.Params) {
			return nil, &Fault{Err: ErrUnknownParam, Rank: d.Rank, Source: d.Copies[i].Source, Copy: i}
		}
		c.copy(&d.Copies[i])
	}
	c.bound()
	for r := range c.ranks {
		c.out.Sessions = append(c.out.Sessions, r)
	}
	slices.Sort(c.out.Sessions)
	c.out.DescriptorSavings = max(0, c.out.ExactDescriptorCount-c.out.DescriptorCount)
	c.out.ExtraWireBytes = max(0, c.out.BytesPlanned-c.out.ExactBytes)
	return &c.out, nil
}

// classicCounter goes through the copies of one destination.
type classicCounter struct {
	t       *Table
	d       *Dest
	max     int64
	out     ClassicCounts
	seen    map[string]bool // sources in Fallback
	ranks   map[int]bool
	order   []uint32
	sources map[uint32]*classicSource
}

// classicSource sums up the copies of one source that are not converted.
type classicSource struct {
	runs, nbytes int64
	ranks        []int
	over         bool // some copy has more runs than allowed
}

// fallback lists a source once, in order of first mention.
func (c *classicCounter) fallback(name string) {
	if !c.seen[name] {
		c.seen[name] = true
		c.out.Fallback = append(c.out.Fallback, name)
	}
}

// copy counts one copy by itself. Whether its source is pulled whole is only known after the last one.
func (c *classicCounter) copy(k *Copy) {
	source, ok := c.t.index[k.Source]
	if !ok {
		c.fallback(k.Source)
		return
	}
	converts := c.d.Params[k.Param].DType != c.t.dtypes[source]
	stride := k.Stride
	if converts { // into a packed staging buffer of the served type
		stride = packedStrides(k.Shape)
	}
	need, dst, ok := c.permutedBox(source, k, stride)
	if !ok {
		c.fallback(k.Source)
		return
	}
	runs, nbytes, ranks := c.overlaps(source, &need, dst)
	c.out.ExactDescriptorCount += runs
	c.out.ExactBytes += nbytes
	if converts {
		c.out.Converts++
		c.add(runs, nbytes, ranks)
		return
	}
	s := c.sources[source]
	if s == nil {
		s = &classicSource{}
		c.sources[source] = s
		c.order = append(c.order, source)
	}
	s.runs += runs
	s.nbytes += nbytes
	s.ranks = append(s.ranks, ranks...)
	s.over = s.over || runs > c.max
}

// add counts runs that are really read.
func (c *classicCounter) add(runs, nbytes int64, ranks []int) {
	c.out.DescriptorCount += runs
	c.out.BytesPlanned += nbytes
	for _, r := range ranks {
		c.ranks[r] = true
	}
}

// bound replaces sources with too many runs by full pulls, where their shards allow it.
func (c *classicCounter) bound() {
	for _, source := range c.order {
		s := c.sources[source]
		shards := c.t.Shards(int(source))
		switch {
		case !s.over:
			c.add(s.runs, s.nbytes, s.ranks)
		case rowPartition(shards, c.t.Shape(int(source))):
			c.out.FullPulls = append(c.out.FullPulls, c.t.names[source])
			for i := range shards {
				b := boxOf(shards[i].Box)
				c.add(1, b.nelems()*c.t.dtypes[source].Size(), []int{shards[i].Rank})
			}
		default:
			c.out.Unbounded = append(c.out.Unbounded, c.t.names[source])
			c.add(s.runs, s.nbytes, s.ranks)
		}
	}
}

// rowPartition reports whether the shards cut dimension 0 without gap or overlap, and nothing else.
func rowPartition(shards []Shard, shape []int64) bool {
	if len(shape) == 0 {
		return false
	}
	shards = slices.Clone(shards)
	slices.SortStableFunc(shards, func(a, b Shard) int { return cmp.Compare(a.Box[0], b.Box[0]) })
	next := int64(0)
	for _, s := range shards {
		if s.Box[0] != next {
			return false
		}
		next = s.Box[1]
		for d := 1; d < len(shape); d++ {
			if s.Box[2*d] != 0 || s.Box[2*d+1] != shape[d] {
				return false
			}
		}
	}
	return next == shape[0]
}

// permutedBox returns the box of the source that a copy needs and the destination strides in the order of
// the source's dimensions, if the view is a box with its dimensions permuted.
func (c *classicCounter) permutedBox(source uint32, k *Copy, stride []int64) (need box, dst []int64, ok bool) {
	shape := c.t.Shape(int(source))
	v, err := view.Replay(shape, k.Ops)
	if err != nil || v.NDim != len(shape) || !slices.Equal(v.Shape[:v.NDim], k.Shape) {
		return need, nil, false
	}
	global := packedStrides(shape)
	dimOf, ok := matchDims(&v, global)
	if !ok {
		return need, nil, false
	}
	need.n = len(shape)
	dst = make([]int64, len(shape))
	at := int64(0)
	for d := range shape {
		if shape[d] > 0 {
			need.lo[d] = v.Offset / global[d] % shape[d]
		}
		at += need.lo[d] * global[d]
	}
	for d, s := range dimOf {
		need.hi[s] = need.lo[s] + v.Shape[d]
		dst[s] = stride[d]
		ok = ok && need.hi[s] <= shape[s]
	}
	return need, dst, ok && at == v.Offset
}

// matchDims finds the source dimension that each dimension of the view moves along. Those of size 1 take
// what is left, in order: that is how the reference pairs them, and it decides where its runs end.
func matchDims(v *view.View, global []int64) ([]int, bool) {
	out := make([]int, v.NDim)
	taken := make([]bool, v.NDim)
	for d := range out {
		out[d] = -1
		if v.Shape[d] == 1 {
			continue
		}
		s := slices.Index(global, v.Stride[d])
		if s < 0 || taken[s] {
			return nil, false
		}
		out[d], taken[s] = s, true
	}
	for d := range out {
		if out[d] < 0 {
			s := slices.Index(taken, false)
			out[d], taken[s] = s, true
		}
	}
	return out, true
}

// overlaps counts the runs of a needed box in every shard that meets it.
func (c *classicCounter) overlaps(source uint32, need *box, dst []int64) (runs, nbytes int64, ranks []int) {
	elsize := c.t.dtypes[source].Size()
	for _, s := range c.t.Shards(int(source)) {
		b := boxOf(s.Box)
		if !need.overlaps(&b) {
			continue
		}
		m := need.meet(&b)
		stride := make([]int64, b.n)
		step := int64(1)
		for d := b.n - 1; d >= 0; d-- {
			stride[d] = step
			step *= b.hi[d] - b.lo[d]
		}
		run, p := int64(1), b.n
		for p > 0 && stride[p-1] == run && dst[p-1] == run {
			p--
			run *= m.hi[p] - m.lo[p]
		}
		runs += m.nelems() / run
		nbytes += m.nelems() * elsize
		ranks = append(ranks, s.Rank)
	}
	return runs, nbytes, ranks
}

// packedStrides returns row-major strides in elements.
func packedStrides(shape []int64) []int64 {
	out := make([]int64, len(shape))
	step := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		out[d] = step
		step *= max(shape[d], 1)
	}
	return out
}
