package plan

import (
	"math/rand/v2"
	"testing"
)

// TestChooseIsTheCheapest compares the choice with trying every way, under costs that favour each of them, and
// performs it: every byte of every hit must be found in what was read.
func TestChooseIsTheCheapest(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(51, 52))
	costs := []Costs{CostsStrided, CostsFlat, CostsLocal, {PerSegment: 1, PerRun: 3, PerByte: 1}, {PerSegment: 1, PerRun: 1, PerByte: 1e6}, {PerSegment: 1e9, PerRun: 1e9, PerByte: 1}}
	var chosen [spanning + 1]int
	for i := range 6000 {
		s := wholeSlot(8, 10)
		b := builder{s: &sharding{slots: []slot{*s}}, uses: []use{{from: U8, to: U8}}, costs: costs[i%len(costs)]}
		hits := randomHits(r, s, 1+r.IntN(3))
		for k := range hits { // into a packed parameter
			hits[k].lat.dst = int64(100 * k)
		}
		g := group{alike: true, hull: hits[0].hull}
		for k := range hits {
			g.add(&hits[k])
		}
		b.choose(s, &g)
		chosen[g.shape]++
		if want := b.cheapest(s, &g); g.cost > want {
			t.Fatalf("%d hits cost %g %s, another way %g", len(hits), g.cost, g.shape, want)
		}
		checkRead(t, s, &g)
	}
	for shape, n := range chosen {
		if n == 0 {
			t.Errorf("%s was never chosen", readShape(shape))
		}
	}
}

// cheapest prices every way to read a group, those that cannot bring it aside.
func (b *builder) cheapest(s *slot, g *group) float64 {
	exact := b.exactPattern(s, g)
	least := -1.0
	for k := range len(exact.dims) + 1 {
		p := exact.bridged(k)
		if !exact.bridgeable(k) && k < len(exact.dims) || !g.reachable(&p) {
			continue
		}
		scatters := 0.0
		for i := range g.hits {
			q := newPattern(0, 0, 1, append([]pdim(nil), g.hits[i].dims...))
			scatters += b.costs.PerStaged*float64(q.nbytes()) + b.costs.PerScatterRun*float64(q.runs(len(q.dims)))
		}
		cost := b.costs.PerSegment + b.costs.PerRun*float64(p.runs(len(p.dims))) + b.costs.PerByte*float64(p.nbytes()) + scatters
		if least < 0 || cost < least {
			least = cost
		}
	}
	return least
}

// checkRead reads the group's pattern out of a shard whose byte i is i, and looks for each hit in it.
func checkRead(t *testing.T, s *slot, g *group) {
	t.Helper()
	if g.shape == exactDirect {
		want := bytesOf(&g.hits[0])
		g.read.each(func(src, _ int64) bool {
			for i := range g.read.run {
				if !want[src+i] {
					t.Fatalf("byte %d is read and not needed", src+i)
				}
				delete(want, src+i)
			}
			return true
		})
		if len(want) > 0 {
			t.Fatalf("%d bytes are not read", len(want))
		}
		return
	}
	staging := make([]int64, g.wire())
	g.read.each(func(src, dst int64) bool {
		for i := range g.read.run {
			staging[dst+i] = src + i
		}
		return true
	})
	for k := range g.hits {
		h := &g.hits[k]
		strides := make([]int64, len(h.dims))
		off, ok := g.read.offsetOf(h.mem, h.dims, strides)
		if !ok {
			t.Fatalf("hit %d is not in what is read", k)
		}
		in := pattern{src: off, dims: make([]pdim, len(h.dims))}
		for d := range h.dims {
			in.dims[d] = pdim{n: h.dims[d].n, src: strides[d], dst: h.dims[d].src}
		}
		in.dst = h.mem
		in.each(func(at, want int64) bool {
			if staging[at] != want {
				t.Fatalf("staging holds byte %d at %d, where hit %d looks for byte %d", staging[at], at, k, want)
			}
			return true
		})
	}
}

// TestSegmentsOfManyDimensions: what a segment's three dimensions don't hold is spelled out.
func TestSegmentsOfManyDimensions(t *testing.T) {
	t.Parallel()
	p := pattern{run: 1, dims: []pdim{{n: 7, src: 1000}, {n: 5, src: 100}, {n: 3, src: 20}, {n: 2, src: 5}, {n: 2, src: 2}}}
	for k, want := range []int64{1, 1, 1, 1, 7, 35} {
		if got := p.segments(k); got != want {
			t.Errorf("%d dimensions are %d segments, expected %d", k, got, want)
		}
	}
	b := builder{t: &template{}}
	b.emitSegs(&p, 3)
	if len(b.t.segs) != 35 {
		t.Fatalf("%d segments, expected 35", len(b.t.segs))
	}
	seen := map[int64]bool{}
	for _, s := range b.t.segs {
		for i := range s.n[0] * s.n[1] * s.n[2] {
			at := s.src + i/(s.n[1]*s.n[2])*s.srcStride[0] + i/s.n[2]%s.n[1]*s.srcStride[1] + i%s.n[2]*s.srcStride[2]
			if seen[at] || s.use != 3 {
				t.Fatalf("byte %d twice, or for use %d", at, s.use)
			}
			seen[at] = true
		}
	}
	p.each(func(src, _ int64) bool {
		if !seen[src] {
			t.Fatalf("byte %d is in no segment", src)
		}
		return true
	})
}
