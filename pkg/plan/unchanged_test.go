package plan_test

import (
	"bytes"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// kept is what a test says is unchanged: boxes (lo0,hi0,…) by source.
type kept [][][]int64

func (k kept) unchanged(source int) iter.Seq2[[]int64, []int64] {
	return func(yield func(lo, hi []int64) bool) {
		for _, b := range k[source] {
			var lo, hi []int64
			for d := 0; d < len(b); d += 2 {
				lo, hi = append(lo, b[d]), append(hi, b[d+1])
			}
			if !yield(lo, hi) {
				return
			}
		}
	}
}

// holds reports whether one of the source's boxes holds the element.
func (k kept) holds(source int, at []int64) bool {
	return slices.ContainsFunc(k[source], func(b []int64) bool {
		for d, x := range at {
			if x < b[2*d] || x >= b[2*d+1] {
				return false
			}
		}
		return true
	})
}

// garbled returns the source's bytes with those elements turned into garbage that are, or are not, kept.
func (k kept) garbled(t *plan.Table, source int, full []byte, which bool) []byte {
	out := bytes.Clone(full)
	elsize := t.DType(source).Size()
	i := int64(0)
	plantest.Each(t.Shape(source), func(at []int64) {
		if k.holds(source, at) == which {
			for b := range elsize {
				out[i*elsize+b] ^= 0x5A
			}
		}
		i++
	})
	return out
}

// randomKept says of some sources that nothing changed, of some that everything did, and of most that some
// boxes or some tiles of a grid didn't.
func randomKept(r *rand.Rand, t *plan.Table) kept {
	k := make(kept, t.Len())
	for i := range k {
		shape := t.Shape(i)
		switch r.IntN(5) {
		case 0:
		case 1:
			k[i] = [][]int64{boxWithin(r, shape, true)}
		case 2:
			k[i] = tilesOf(r, shape)
		default:
			for range 1 + r.IntN(4) {
				k[i] = append(k[i], boxWithin(r, shape, false))
			}
		}
	}
	return k
}

func boxWithin(r *rand.Rand, shape []int64, whole bool) []int64 {
	b := []int64{}
	for _, n := range shape {
		lo := r.Int64N(n)
		hi := lo + r.Int64N(n-lo+1)
		if whole {
			lo, hi = 0, n
		}
		b = append(b, lo, hi)
	}
	return b
}

// tilesOf picks some cells of a grid over the shape.
func tilesOf(r *rand.Rand, shape []int64) [][]int64 {
	step := make([]int64, len(shape))
	cells := make([]int64, len(shape))
	for d, n := range shape {
		step[d] = 1 + r.Int64N(n)
		cells[d] = (n + step[d] - 1) / step[d]
	}
	var out [][]int64
	plantest.Each(cells, func(at []int64) {
		if r.IntN(3) == 0 {
			return
		}
		b := []int64{}
		for d, i := range at {
			b = append(b, i*step[d], min((i+1)*step[d], shape[d]))
		}
		out = append(out, b)
	})
	return out
}

// TestPartial refits the part that changed, on random tilings, and wants the whole new version: what is kept
// from a base in which everything changed is garbage, and what is read from ranks on which everything else is.
func TestPartial(t *testing.T) {
	t.Parallel()
	n := uint64(*cases)
	if testing.Short() {
		n /= 10
	}
	saved := int64(0)
	for seed := *first; seed < *first+n; seed++ {
		c, err := plantest.Random(seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		r := rand.New(rand.NewPCG(seed, 7))
		k := randomKept(r, c.Table)
		o := randomOptions(seed)
		o.Classic = false
		saved += checkPartial(t, seed, c, k, o, seed%2 == 0)
	}
	if saved == 0 {
		t.Error("nothing was ever saved")
	}
}

func checkPartial(t *testing.T, seed uint64, c *plantest.Case, k kept, o plan.Options, derived bool) int64 {
	t.Helper()
	whole, err := plan.New(c.Table, c.Dests, o)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	base := blank(c)
	c.World.Load(c.Table, func(i int) []byte { return k.garbled(c.Table, i, c.Full[c.Number(i)], false) })
	if err := c.World.Perform(whole, base); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	o.Unchanged = k.unchanged
	var p *plan.Plan
	if derived {
		p, err = whole.Partial(k.unchanged)
	} else {
		p, err = plan.New(c.Table, c.Dests, o)
	}
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	c.World.Load(c.Table, func(i int) []byte { return k.garbled(c.Table, i, c.Full[c.Number(i)], true) })
	got := blank(c)
	if err := c.World.Perform(p, got); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	kept := int64(0)
	for r := range p.Kept() {
		if err := r.Do(got[r.Dest], base[r.Dest]); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		n := r.Run
		for _, m := range r.Shape {
			n *= m
		}
		kept += n
	}
	for i := range got {
		if !bytes.Equal(got[i], c.Arenas[i]) {
			t.Fatalf("seed %d: destination %d differs from the dense reference (kept %v, options %+v)\n%s", seed, i, k, o, p.Describe())
		}
	}
	s, w := p.Stats(), whole.Stats()
	if s.Kept != kept || s.Written+s.Kept != w.Written {
		t.Fatalf("seed %d: %d kept and %d written, %d regions kept, of %d", seed, s.Kept, s.Written, kept, w.Written)
	}
	if s.Saved+s.Needed != w.Needed {
		t.Fatalf("seed %d: %d bytes saved, %d needed, %d if nothing is kept", seed, s.Saved, s.Needed, w.Needed)
	}
	if seed%4 == 0 {
		checkReroute(t, seed, c, p)
	}
	return s.Saved
}

// TestPartialNeedsNoShardOfWhatIsKept: what the base holds may be gone from all ranks; what changed may not.
func TestPartialNeedsNoShardOfWhatIsKept(t *testing.T) {
	t.Parallel()
	w := &plantest.World{}
	w.AddShard(0, "a", plan.U8, []int64{8, 4}, []int64{0, 8, 0, 2}, nil, 16) // nobody holds columns 2 and 3
	d := plan.Dest{
		Params: []plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{8, 4}}},
		Copies: []plan.Copy{{Source: "a", Shape: []int64{8, 4}, Stride: []int64{4, 1}}},
	}
	tab := merged(t, w)
	costly := plan.Costs{PerSegment: 1, PerRun: 1, PerByte: 1e9, PerStaged: 1, PerScatterRun: 1} // no byte that nobody needs
	p, err := plan.New(tab, []plan.Dest{d}, plan.Options{Costs: costly, Unchanged: kept{{{2, 8, 0, 1}, {0, 8, 2, 4}}}.unchanged})
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Wire != 10 || s.Saved != 22 || s.Kept != 22 || s.Written != 10 {
		t.Errorf("%d bytes on the wire, %d saved, %d kept, %d written", s.Wire, s.Saved, s.Kept, s.Written)
	}
	_, err = plan.New(tab, []plan.Dest{d}, plan.Options{Unchanged: kept{{{0, 8, 3, 4}}}.unchanged})
	var f *plan.Fault
	if !errors.As(err, &f) || !errors.Is(f, plan.ErrUncovered) || !slices.Equal(f.Box, []int64{0, 8, 2, 3}) {
		t.Errorf("column 2 changed and nobody holds it: %v", err)
	}
}

// TestPartialRefuses what makes no sense of a base.
func TestPartialRefuses(t *testing.T) {
	t.Parallel()
	w := &plantest.World{}
	w.AddShard(0, "a", plan.U8, []int64{8, 4}, []int64{0, 8, 0, 4}, nil, 32)
	d := plan.Dest{
		Params: []plan.Param{{Name: "p", DType: plan.U8, Shape: []int64{8, 4}}},
		Copies: []plan.Copy{{Source: "a", Shape: []int64{8, 4}, Stride: []int64{4, 1}}},
	}
	tab := merged(t, w)
	for name, box := range map[string][]int64{
		"beyond the shape": {0, 9, 0, 4}, "below it": {-1, 8, 0, 4}, "backwards": {4, 2, 0, 4}, "other dimensions": {0, 8},
	} {
		_, err := plan.New(tab, []plan.Dest{d}, plan.Options{Unchanged: kept{{box}}.unchanged})
		if !errors.Is(err, plan.ErrLayout) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := plan.New(tab, []plan.Dest{d}, plan.Options{Classic: true, Unchanged: kept{nil}.unchanged}); err == nil {
		t.Error("the classic plan took a base")
	}
	p, err := plan.New(tab, []plan.Dest{d}, plan.Options{Unchanged: kept{{{0, 8, 0, 4}}}.unchanged})
	if err != nil || p.Batches() != 0 {
		t.Fatalf("nothing changed: %v", err)
	}
	other := merged(t, w)
	if q, err := p.Rebind(other); err != nil || q.Stats().Wire != 32 {
		t.Errorf("a partial plan was rebound as one: %v", err)
	}
	for k := range p.Kept() {
		if err := k.Do(make([]byte, 32), make([]byte, 31)); err == nil {
			t.Error("a region was kept from a base that ends before it")
		}
	}
}
