package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Conformance runs the suite.
func Conformance(t *testing.T, f Factory) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, Factory)
	}{
		{"shapes", shapes},
		{"random batches", randomBatches},
		{"empty batch", emptyBatch},
		{"many sources posted before any wait", manySources},
		{"one peer from many goroutines", manyGoroutines},
		{"outside of region or destination", outside},
		{"source that holds less than it was thought to", lyingTable},
		{"another incarnation", staleIncarnation},
		{"foreign and damaged access", damagedAccess},
		{"withdrawn region", withdrawn},
		{"end of a wait", endOfWait},
		{"abort", abort},
		{"close with reads in flight", closeInFlight},
		{"source closed", sourceClosed},
		{"closed ends refuse", closedEnds},
		{"bytes stay current", staysCurrent},
		{"parts are told of when they have come", partsLand},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, f) })
	}
}

// rig is a source with two regions, a connected reader and a destination.
type rig struct {
	Pair
	src    []*rdma.Memory
	reg    []rdma.Region
	remote rdma.Remote
	peer   rdma.Peer
	dst    *rdma.Memory
}

const (
	rigRegion = 3 << 20 // bytes of the first region; the second holds a third of it
	rigDst    = 6 << 20
)

func newRig(t *testing.T, f Factory) *rig {
	t.Helper()
	g := &rig{Pair: f(t), dst: Alloc(t, rigDst, 99)}
	for i, n := range []int64{rigRegion, rigRegion / 3} {
		m := AllocAs(t, n, uint64(i), rdma.AllocOptions{Backing: g.Backing})
		g.src = append(g.src, m)
		g.reg = append(g.reg, Register(t, g.Source, m))
	}
	closeWith(t, g.Source, g.Reader)
	g.remote = RemoteOf(t, g.Pair, g.reg...)
	g.peer = Connect(t, g.Reader, g.remote)
	return g
}

// closeWith closes transports before the memory they hold, which cleanups close earlier registered.
func closeWith(t *testing.T, ts ...rdma.Transport) {
	t.Cleanup(func() {
		for _, tr := range ts {
			if err := tr.Close(); err != nil {
				t.Errorf("close transport: %v", err)
			}
		}
	})
}

func (g *rig) check(t *testing.T, segs []rdma.Segment) {
	t.Helper()
	want := bytes.Clone(g.dst.Bytes())
	Apply(want, [][]byte{g.src[0].Bytes(), g.src[1].Bytes()}, segs)
	if err := Read(g.peer, g.dst, segs); err != nil {
		t.Fatalf("read %+v: %v", segs, err)
	}
	same(t, g.dst.Bytes(), want, segs)
}

func same(t *testing.T, got, want []byte, segs []rdma.Segment) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("byte %d of the destination is %#x, want %#x, after %d segments, first %+v", i, got[i], want[i], len(segs), segs[0])
		}
	}
}

func shapes(t *testing.T, f Factory) {
	g := newRig(t, f)
	one := [3]int64{1, 1, 1}
	for name, segs := range map[string][]rdma.Segment{
		"one byte":            {rdma.Contiguous(0, 17, 5, 1)},
		"whole region":        {rdma.Contiguous(0, 0, 1, rigRegion)},
		"last byte":           {rdma.Contiguous(1, rigRegion/3-1, rigDst-1, 1)},
		"two regions":         {rdma.Contiguous(0, 7, 0, 1000), rdma.Contiguous(1, 9, 1000, 100_000)},
		"column slice":        {{Region: 0, Src: 384, Dst: 64, Run: 384, N: [3]int64{1, 1, 1500}, SrcStride: [3]int64{0, 0, 1536}, DstStride: [3]int64{0, 0, 384}}},
		"rows to columns":     {{Region: 0, Src: 3, Run: 1024, N: [3]int64{1, 1, 900}, SrcStride: [3]int64{0, 0, 1024}, DstStride: [3]int64{0, 0, 4096}}},
		"three dimensions":    {{Region: 1, Run: 10, N: [3]int64{3, 5, 7}, SrcStride: [3]int64{5000, 700, 11}, DstStride: [3]int64{3000, 500, 64}}},
		"long strided runs":   {{Region: 0, Run: 100_000, N: [3]int64{1, 2, 5}, SrcStride: [3]int64{0, 1_000_000, 150_000}, DstStride: [3]int64{0, 600_000, 100_001}}},
		"one byte runs":       {{Region: 0, Src: 1, Dst: 2, Run: 1, N: [3]int64{1, 400, 300}, SrcStride: [3]int64{0, 1000, 3}, DstStride: [3]int64{0, 300, 1}}},
		"dense in disguise":   {{Region: 0, Run: 16, N: [3]int64{10, 20, 30}, SrcStride: [3]int64{9600, 480, 16}, DstStride: [3]int64{9600, 480, 16}}},
		"the same byte twice": {{Region: 0, Src: 8, Run: 64, N: one, SrcStride: [3]int64{1, 2, 3}}, rdma.Contiguous(0, 8, 64, 64)},
	} {
		t.Run(name, func(t *testing.T) { g.check(t, segs) })
	}
}

func randomBatches(t *testing.T, f Factory) {
	g := newRig(t, f)
	r := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{1, 2, 3, 10, 100, 3000, 7} {
		g.check(t, RandomSegments(r, n, []int64{rigRegion, rigRegion / 3}, rigDst))
	}
}

func emptyBatch(t *testing.T, f Factory) {
	g := newRig(t, f)
	if err := Read(g.peer, g.dst, nil); err != nil {
		t.Fatalf("read of nothing: %v", err)
	}
	if n := g.dst.Holds(); n != 0 {
		t.Fatalf("%d holds are left on the destination", n)
	}
}

func manySources(t *testing.T, f Factory) {
	const sources, nbytes = 5, 700_000
	dst := Alloc(t, sources*nbytes, 0)
	want := make([]byte, sources*nbytes)
	peers := make([]rdma.Peer, sources)
	for i := range peers {
		p := f(t)
		m := AllocAs(t, nbytes, uint64(100+i), rdma.AllocOptions{Backing: p.Backing})
		reg := Register(t, p.Source, m)
		closeWith(t, p.Source, p.Reader)
		peers[i] = Connect(t, p.Reader, RemoteOf(t, p, reg))
		copy(want[i*nbytes:], m.Bytes())
	}
	var live []rdma.Transfer
	for i, p := range peers {
		tr, err := p.Read(dst, []rdma.Segment{rdma.Contiguous(0, 0, int64(i)*nbytes, nbytes)})
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, tr)
	}
	for i, tr := range live {
		if err := Wait(tr); err != nil {
			t.Fatalf("source %d: %v", i, err)
		}
	}
	same(t, dst.Bytes(), want, []rdma.Segment{{}})
}

func manyGoroutines(t *testing.T, f Factory) {
	g := newRig(t, f)
	const n = 16
	want := bytes.Clone(g.dst.Bytes())
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		s := rdma.Contiguous(0, int64(i)*1000, int64(i)*rigDst/n, rigDst/n-1)
		Apply(want, [][]byte{g.src[0].Bytes()}, []rdma.Segment{s})
		wg.Go(func() { errs[i] = Read(g.peer, g.dst, []rdma.Segment{s}) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	same(t, g.dst.Bytes(), want, []rdma.Segment{{}})
}

func outside(t *testing.T, f Factory) {
	g := newRig(t, f)
	before := bytes.Clone(g.dst.Bytes())
	good := rdma.Contiguous(0, 0, 0, 100)
	for name, bad := range map[string]rdma.Segment{
		"across the region's end": rdma.Contiguous(0, rigRegion-1, 0, 2),
		"behind the region":       rdma.Contiguous(1, rigRegion/3, 0, 1),
		"before the region":       rdma.Contiguous(0, -1, 0, 1),
		"unknown region":          rdma.Contiguous(2, 0, 0, 1),
		"destination's end":       rdma.Contiguous(0, 0, rigDst-1, 2),
		"before the destination":  rdma.Contiguous(0, 0, -5, 10),
		"no bytes":                rdma.Contiguous(0, 0, 0, 0),
		"negative stride":         {Run: 1, N: [3]int64{1, 1, 2}, SrcStride: [3]int64{0, 0, -1}, DstStride: [3]int64{0, 0, 1}},
		"zero count":              {Run: 1, N: [3]int64{0, 1, 1}},
		"stride leads outside":    {Run: 1, N: [3]int64{1, 1, 4}, SrcStride: [3]int64{0, 0, rigRegion}, DstStride: [3]int64{0, 0, 1}},
		"overflow":                {Run: 1 << 40, N: [3]int64{1 << 40, 1 << 40, 1}, SrcStride: [3]int64{1 << 40, 1 << 40, 0}, DstStride: [3]int64{1, 1, 1}},
	} {
		tr, err := g.peer.Read(g.dst, []rdma.Segment{good, bad})
		if err == nil {
			err = Wait(tr)
		}
		if !errors.Is(err, rdma.ErrRefused) {
			t.Errorf("%s: %v, want refused", name, err)
		}
		if !bytes.Equal(before, g.dst.Bytes()) {
			t.Fatalf("%s: the destination changed", name)
		}
	}
	g.check(t, []rdma.Segment{good})
}

func lyingTable(t *testing.T, f Factory) {
	g := newRig(t, f)
	lie := g.remote
	lie.Regions = append([]rdma.RemoteRegion(nil), g.remote.Regions...)
	lie.Regions[1].Nbytes *= 2
	lie.Regions = append(lie.Regions, rdma.RemoteRegion{Base: lie.Regions[0].Base, Nbytes: 100})
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	p, err := g.Reader.Connect(ctx, lie)
	if err != nil {
		if !errors.Is(err, rdma.ErrRefused) && !errors.Is(err, rdma.ErrStale) {
			t.Fatalf("connect: %v, want refused or stale", err)
		}
		return
	}
	defer func() { _ = p.Close() }()
	for _, s := range []rdma.Segment{rdma.Contiguous(1, rigRegion/3-10, 0, 20), rdma.Contiguous(2, 0, 0, 10)} {
		if err := Read(p, g.dst, []rdma.Segment{s}); !errors.Is(err, rdma.ErrRefused) {
			t.Errorf("read %+v: %v, want refused", s, err)
		}
	}
	if err := Read(p, g.dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 10)}); err != nil {
		t.Errorf("after refusals: %v", err)
	}
}

func staleIncarnation(t *testing.T, f Factory) {
	g := newRig(t, f)
	old := g.remote
	old.Incarnation = "somebody-else"
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	if _, err := g.Reader.Connect(ctx, old); !errors.Is(err, rdma.ErrStale) {
		t.Fatalf("connect: %v, want stale", err)
	}
	g.check(t, []rdma.Segment{rdma.Contiguous(0, 0, 0, 10)})
}

// damagedAccess asks for a typed error or, where the damage does no harm, right bytes.
func damagedAccess(t *testing.T, f Factory) {
	g := newRig(t, f)
	meta := g.remote.Access.Metadata
	r := rand.New(rand.NewPCG(7, 8))
	try := func(what string, a rdma.Access) {
		bad := g.remote
		bad.Access = a
		ctx, cancel := context.WithTimeout(t.Context(), Deadline)
		defer cancel()
		p, err := g.Reader.Connect(ctx, bad)
		if err == nil {
			err = Read(p, g.dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 64)})
			if err == nil && !bytes.Equal(g.dst.Bytes()[:64], g.src[0].Bytes()[:64]) {
				t.Errorf("%s: wrong bytes and no error", what)
			}
			_ = p.Close()
		}
		if err != nil && rdma.KindOf(err) == 0 {
			t.Errorf("%s: %v carries no kind", what, err)
		}
	}
	try("other transport", rdma.Access{Transport: "other", Metadata: meta})
	try("no metadata", rdma.Access{Transport: g.remote.Access.Transport})
	for n := 0; n < len(meta); n += 1 + len(meta)/24 {
		try(fmt.Sprintf("cut to %d bytes", n), rdma.Access{Transport: g.remote.Access.Transport, Metadata: meta[:n]})
	}
	for range 40 {
		b := bytes.Clone(meta)
		bit := r.IntN(8 * len(b))
		b[bit/8] ^= 1 << (bit % 8)
		try(fmt.Sprintf("bit %d flipped", bit), rdma.Access{Transport: g.remote.Access.Transport, Metadata: b})
	}
}
