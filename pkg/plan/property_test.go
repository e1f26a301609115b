package plan_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// eachCase goes over random cases with their options.
func eachCase(t *testing.T, n uint64, f func(seed uint64, c *plantest.Case, o plan.Options)) {
	t.Helper()
	if testing.Short() {
		n /= 4
	}
	for seed := range n {
		c, err := plantest.Random(seed + 1<<40) // others than those of TestDense
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		f(seed, c, randomOptions(seed))
	}
}

// fill performs a plan into blank arenas.
func fill(t *testing.T, seed uint64, w *plantest.World, p *plan.Plan, c *plantest.Case) [][]byte {
	t.Helper()
	got := blank(c)
	if err := w.Perform(p, got); err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, p.Describe())
	}
	return got
}

// TestEqualInputsEqualPlans: two plans of equal inputs are the same byte for byte, also when the layouts come in
// another order.
func TestEqualInputsEqualPlans(t *testing.T) {
	t.Parallel()
	eachCase(t, 300, func(seed uint64, c *plantest.Case, o plan.Options) {
		p := checkCase(t, seed, c, o)
		layouts := slices.Clone(c.World.Layouts)
		slices.Reverse(layouts)
		again, err := plan.Merge(layouts)
		if err != nil {
			t.Fatal(err)
		}
		q, err := plan.New(again, c.Dests, o)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := p.Describe(), q.Describe(); a != b {
			t.Fatalf("seed %d: equal inputs, other plans:\n%s\n%s", seed, a, b)
		}
		if a, b := p.Summary(), q.Summary(); a != b {
			t.Fatalf("seed %d: equal inputs, other summaries:\n%s\n%s", seed, a, b)
		}
	})
}

// TestOrderOfParametersAndCopies: what a destination lists in another order is the same bytes, needed once.
func TestOrderOfParametersAndCopies(t *testing.T) {
	t.Parallel()
	eachCase(t, 300, func(seed uint64, c *plantest.Case, o plan.Options) {
		r := rand.New(rand.NewPCG(seed, 7))
		p := checkCase(t, seed, c, o)
		shuffled := *c
		shuffled.Dests = nil
		for _, d := range c.Dests {
			order := r.Perm(len(d.Params))
			out := plan.Dest{Rank: d.Rank, Copies: slices.Clone(d.Copies)}
			place := make([]int, len(order))
			for to, from := range order {
				out.Params, place[from] = append(out.Params, d.Params[from]), to
			}
			for k := range out.Copies {
				out.Copies[k].Param = place[out.Copies[k].Param]
			}
			r.Shuffle(len(out.Copies), func(i, k int) { out.Copies[i], out.Copies[k] = out.Copies[k], out.Copies[i] })
			shuffled.Dests = append(shuffled.Dests, out)
		}
		q := checkCase(t, seed, &shuffled, o)
		if a, b := p.Stats(), q.Stats(); a.Needed != b.Needed || a.Written != b.Written || a.Copies != b.Copies {
			t.Fatalf("seed %d: %+v, and in another order %+v", seed, a, b)
		}
	})
}

// split cuts shards in two that lie where they lay: the same memory, described by more boxes.
func split(r *rand.Rand, w *plantest.World) *plantest.World {
	out := &plantest.World{Memory: w.Memory}
	for _, l := range w.Layouts {
		c := *l
		c.Source, c.Region, c.Offset, c.Box, c.Stride = nil, nil, nil, nil, nil
		at := 0
		for k, s := range l.Source {
			ndim := int(l.ShapeEnd[s])
			if s > 0 {
				ndim -= int(l.ShapeEnd[s-1])
			}
			box, stride := l.Box[2*at:2*(at+ndim)], l.Stride[at:at+ndim]
			at += ndim
			add := func(box []int64, off int64) {
				c.Source, c.Region, c.Offset = append(c.Source, s), append(c.Region, l.Region[k]), append(c.Offset, off)
				c.Box, c.Stride = append(c.Box, box...), append(c.Stride, stride...)
			}
			d := 0
			if ndim > 0 {
				d = r.IntN(ndim)
			}
			if ndim == 0 || box[2*d+1]-box[2*d] < 2 || r.IntN(3) == 0 {
				add(box, l.Offset[k])
				continue
			}
			cut := 1 + r.Int64N(box[2*d+1]-box[2*d]-1)
			lo, hi := slices.Clone(box), slices.Clone(box)
			lo[2*d+1], hi[2*d] = box[2*d]+cut, box[2*d]+cut
			add(lo, l.Offset[k])
			add(hi, l.Offset[k]+cut*stride[d]*l.DTypes[s].Size())
		}
		out.Layouts = append(out.Layouts, &c)
	}
	return out
}

// TestSplitShards: shards described by more boxes are the same bytes, and as many are needed. A plan that is rebound
// to them is the one that is made of them.
func TestSplitShards(t *testing.T) {
	t.Parallel()
	eachCase(t, 300, func(seed uint64, c *plantest.Case, o plan.Options) {
		r := rand.New(rand.NewPCG(seed, 8))
		p := checkCase(t, seed, c, o)
		w := split(r, c.World)
		cut, err := plan.Merge(w.Layouts)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		q, err := plan.New(cut, c.Dests, o)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, got := range fill(t, seed, w, q, c) {
			if !bytes.Equal(got, c.Arenas[i]) {
				t.Fatalf("seed %d: destination %d differs once shards are split\n%s", seed, i, q.Describe())
			}
		}
		if a, b := p.Stats().Needed, q.Stats().Needed; a != b && !o.Classic {
			t.Fatalf("seed %d: %d bytes needed, once split %d", seed, a, b)
		}
		again, err := p.Rebind(cut)
		if err != nil || again.Describe() != q.Describe() {
			t.Fatalf("seed %d: rebound (%v)\n%splanned\n%s", seed, err, again.Describe(), q.Describe())
		}
	})
}

// TestBoundsAreKept: no batch is larger than it may be, but for one that holds a single element.
func TestBoundsAreKept(t *testing.T) {
	t.Parallel()
	const align, element = 64, 8
	eachCase(t, 600, func(seed uint64, c *plantest.Case, o plan.Options) {
		r := rand.New(rand.NewPCG(seed, 9))
		o.BatchBytes, o.StagingBytes = 1+r.Int64N(300), 1+r.Int64N(300)
		p := checkCase(t, seed, c, o)
		peak := int64(0)
		for i := range p.Batches() {
			b := p.Batch(i)
			peak = max(peak, b.Staging)
			if b.Wire > max(o.BatchBytes, element) || b.Staging > max(o.StagingBytes, align) {
				t.Fatalf("seed %d, batch %d: %+v, at most %d bytes and %d of staging\n%s", seed, i, b, o.BatchBytes, o.StagingBytes, p.Describe())
			}
		}
		if s := p.Stats(); s.StagingPeak != peak || s.Batches != p.Batches() {
			t.Fatalf("seed %d: %+v, the largest staging is %d of %d batches", seed, s, peak, p.Batches())
		}
	})
}

// TestStatsAreSums: what a plan says of itself is what its batches, segments and scatters add up to.
func TestStatsAreSums(t *testing.T) {
	t.Parallel()
	eachCase(t, 300, func(seed uint64, c *plantest.Case, o plan.Options) {
		p := checkCase(t, seed, c, o)
		var sum plan.Stats
		ranks := map[int]bool{}
		for i := range p.Batches() {
			b := p.Batch(i)
			ranks[b.Rank] = true
			var wire, runs int64
			segs := 0
			for s := range p.Segments(i) {
				n := s.N[0] * s.N[1] * s.N[2]
				segs, wire, runs = segs+1, wire+n*s.Run, runs+n
			}
			if segs != b.Segments || wire != b.Wire || runs != b.Runs {
				t.Fatalf("seed %d, batch %d says %+v: %d segments, %d runs, %d bytes", seed, i, b, segs, runs, wire)
			}
			sum.Segments, sum.Wire, sum.Runs = sum.Segments+int64(segs), sum.Wire+wire, sum.Runs+runs
		}
		s := p.Stats()
		if s.Segments != sum.Segments || s.Wire != sum.Wire || s.Runs != sum.Runs || s.Ranks != len(ranks) || s.Staged > s.Wire {
			t.Fatalf("seed %d: %+v, the sums are %+v of %d ranks", seed, s, sum, len(ranks))
		}
		written := int64(0)
		for i := range c.Dests {
			for _, k := range c.Dests[i].Copies {
				written += plantest.Nelems(k.Shape) * c.Dests[i].Params[k.Param].DType.Size()
			}
		}
		if s.Written != written {
			t.Fatalf("seed %d: %d bytes written, the copies have %d", seed, s.Written, written)
		}
	})
}

// TestClassicCountsAgainstCountingElements compares the reference's counts with walking over the elements of each
// copy, shard by shard: a run ends where the source's or the destination's next element lies elsewhere. The
// reference also ends runs at dimensions of one element, so parts that have one only bound its count from below.
func TestClassicCountsAgainstCountingElements(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(71, 72))
	compared := 0
	for i := range 500 {
		shape := []int64{2 + r.Int64N(5), 2 + r.Int64N(5), 2 + r.Int64N(4)}
		w := &plantest.World{}
		cutDim := r.IntN(2)
		for rank, lo := 0, int64(0); lo < shape[cutDim]; rank++ {
			at := min(shape[cutDim], lo+1+r.Int64N(3))
			b := fullBox(shape)
			b[2*cutDim], b[2*cutDim+1] = lo, at
			w.AddShard(rank, "x", plan.BF16, shape, b, nil, 1<<20)
			lo = at
		}
		tab := merged(t, w)
		var d plan.Dest
		var runs, nbytes int64
		exact := true
		for q := range 1 + r.IntN(3) {
			lo, n, order := make([]int64, 3), make([]int64, 3), r.Perm(3)
			var ops []plan.Op
			for k := range 3 {
				n[k] = 2 + r.Int64N(shape[k]-1)
				lo[k] = r.Int64N(shape[k] - n[k] + 1)
				ops = append(ops, plantest.Op("narrow", int64(k), lo[k], n[k]))
			}
			ops = append(ops, plantest.Op("permute", int64(order[0]), int64(order[1]), int64(order[2])))
			c := plan.Copy{Source: "x", Ops: ops, Param: q, Shape: []int64{n[order[0]], n[order[1]], n[order[2]]}}
			c.Stride = plantest.RowMajor(c.Shape)
			d.Params = append(d.Params, plan.Param{Name: string(rune('a' + q)), DType: plan.BF16, Shape: c.Shape})
			d.Copies = append(d.Copies, c)
			dst := make([]int64, 3) // destination stride of each source dimension
			for k, s := range order {
				dst[s] = c.Stride[k]
			}
			for _, s := range tab.Shards(0) {
				k, m := countRuns(s.Box, lo, n, dst)
				if dst[2] != 1 {
					k = m // rows that end where the next begins make no longer runs: the reference looks at strides only
				}
				runs, nbytes = runs+k, nbytes+2*m
				for d := range 3 {
					exact = exact && min(s.Box[2*d+1], lo[d]+n[d])-max(s.Box[2*d], lo[d]) != 1
				}
			}
		}
		got, err := plan.CountClassic(tab, &d, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if k := got.ExactDescriptorCount; k < runs || exact && k != runs || got.DescriptorCount != k {
			t.Fatalf("case %d: got %+v, counted %d runs (exactly: %t)", i, got, runs, exact)
		}
		if got.ExactBytes != nbytes || got.BytesPlanned != nbytes || got.Fallback != nil {
			t.Fatalf("case %d: got %+v, counted %d bytes", i, got, nbytes)
		}
		if exact {
			compared++
		}
	}
	if compared < 50 {
		t.Errorf("only %d cases were compared exactly", compared)
	}
}

// countRuns walks over what a shard holds of the box at lo of n elements, in the order of the source.
func countRuns(shard, lo, n, dst []int64) (runs, elems int64) {
	local := plantest.RowMajor(plantest.Sizes(shard))
	lastSrc, lastDst := int64(-9), int64(-9)
	plantest.Each(n, func(at []int64) {
		from, to := int64(0), int64(0)
		for d, x := range at {
			if c := lo[d] + x; c < shard[2*d] || c >= shard[2*d+1] {
				return
			}
			from += (lo[d] + x - shard[2*d]) * local[d]
			to += x * dst[d]
		}
		if from != lastSrc+1 || to != lastDst+1 {
			runs++
		}
		lastSrc, lastDst = from, to
		elems++
	})
	return runs, elems
}
