package rdmatest

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// FailureSuite runs failures of sources in processes of their own against a reader in this one.
type FailureSuite struct {
	Spec   SourceSpec                        // Kind, Backing; regions are the suite's
	Reader func(t testing.TB) rdma.Transport // fresh, with deadlines of a second or two, closed by a cleanup
	// KernelReads is set where a frozen source doesn't matter, because the kernel copies for it.
	KernelReads bool
	// Damageable is how many bytes of the metadata, from the first, may be damaged without naming another host; 0: all.
	Damageable int
}

const (
	failureRegion = 12 << 20 // bytes
	failureReads  = 200
)

// Run runs the suite.
func (f FailureSuite) Run(t *testing.T) {
	t.Helper()
	f.Spec.Regions = []int64{failureRegion, 1 << 20}
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"several sources, several readers", f.several},
		{"killed before the connect", f.killedBefore},
		{"killed after the connect", f.killedAfter},
		{"killed in mid-read", f.killedInRead},
		{"frozen before the connect", f.frozenBefore},
		{"frozen after the connect", f.frozenAfter},
		{"frozen in mid-read", f.frozenInRead},
		{"restarted", f.restarted},
		{"region withdrawn", f.regionWithdrawn},
		{"outside, across and beside regions", f.outside},
		{"damaged endpoint", f.damaged},
		{"endpoint of another", f.foreign},
		{"reader gives up, then reads on", f.readsOn},
	} {
		t.Run(c.name, c.run)
	}
}

// kinds checks that err is a terminal error of one of the kinds.
func kinds(t *testing.T, what string, err error, want ...rdma.Kind) {
	t.Helper()
	if !slices.Contains(want, rdma.KindOf(err)) {
		t.Errorf("%s: %v, want one of %v", what, err, want)
	}
}

func (f FailureSuite) dst(t *testing.T) *rdma.Memory {
	t.Helper()
	m, err := rdma.Alloc(failureRegion, rdma.AllocOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() }) // quarantined memory can't be closed
	return m
}

func (f FailureSuite) rig(t *testing.T) (*Source, rdma.Transport, *rdma.Memory) {
	t.Helper()
	dst := f.dst(t)
	s := StartSource(t, f.Spec)
	return s, f.Reader(t), dst
}

var wholeRegion = []rdma.Segment{rdma.Contiguous(0, 0, 0, failureRegion)}

// connectSoon connects with a deadline of a few seconds.
func connectSoon(tr rdma.Transport, r rdma.Remote) (rdma.Peer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	return tr.Connect(ctx, r)
}

// several: each of two readers reads from each of three sources at once.
func (f FailureSuite) several(t *testing.T) {
	sources := []*Source{StartSource(t, f.Spec), StartSource(t, f.Spec), StartSource(t, f.Spec)}
	var live []rdma.Transfer
	var dsts []*rdma.Memory
	for range 2 {
		reader := f.Reader(t)
		for _, s := range sources {
			dst := f.dst(t)
			tr, err := Connect(t, reader, s.Remote).Read(dst, wholeRegion)
			if err != nil {
				t.Fatal(err)
			}
			live, dsts = append(live, tr), append(dsts, dst)
		}
	}
	for i, tr := range live {
		if err := Wait(tr); err != nil {
			t.Errorf("read %d: %v", i, err)
		} else if !bytes.Equal(dsts[i].Bytes(), sources[i%3].Bytes(0)) {
			t.Errorf("read %d: wrong bytes and no error", i)
		}
	}
}

func (f FailureSuite) killedBefore(t *testing.T) {
	s, reader, _ := f.rig(t)
	s.Kill()
	_, err := connectSoon(reader, s.Remote)
	kinds(t, "connect", err, rdma.ErrUnreachable, rdma.ErrStale)
}

func (f FailureSuite) killedAfter(t *testing.T) {
	s, reader, dst := f.rig(t)
	other := StartSource(t, f.Spec)
	p, q := Connect(t, reader, s.Remote), Connect(t, reader, other.Remote)
	mustRead(t, p, dst, s)
	s.Kill()
	for range 2 {
		kinds(t, "read of a dead source", Read(p, dst, wholeRegion), rdma.ErrReset, rdma.ErrUnreachable)
	}
	mustRead(t, q, dst, other)
}

func mustRead(t *testing.T, p rdma.Peer, dst *rdma.Memory, s *Source) {
	t.Helper()
	if err := Read(p, dst, wholeRegion); err != nil {
		t.Fatalf("read: %v", err)
	}
	if !bytes.Equal(dst.Bytes(), s.Bytes(0)) {
		t.Fatal("wrong bytes and no error")
	}
}

func (f FailureSuite) killedInRead(t *testing.T) {
	s, reader, dst := f.rig(t)
	p := Connect(t, reader, s.Remote)
	var live []rdma.Transfer
	for range 16 {
		tr, err := p.Read(dst, wholeRegion)
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, tr)
	}
	if err := Wait(live[0]); err != nil {
		t.Fatalf("first read: %v", err)
	}
	s.Kill()
	failed := 0
	for _, tr := range live[1:] {
		if err := Wait(tr); err != nil {
			kinds(t, "read", err, rdma.ErrReset, rdma.ErrUnreachable, rdma.ErrQuarantined)
			failed++
		}
	}
	kinds(t, "read after the death", Read(p, dst, wholeRegion), rdma.ErrReset, rdma.ErrUnreachable)
	t.Logf("%d of 15 reads under way failed", failed)
}

func (f FailureSuite) frozenBefore(t *testing.T) {
	s, reader, dst := f.rig(t)
	s.Freeze()
	p, err := connectSoon(reader, s.Remote)
	if err == nil {
		err = Read(p, dst, wholeRegion)
		defer func() { _ = p.Close() }()
	}
	if !f.KernelReads || err != nil {
		kinds(t, "connect or read", err, rdma.ErrTimeout)
	}
	s.Thaw()
	mustRead(t, Connect(t, f.Reader(t), s.Remote), dst, s)
}

// frozenAfter: the source stops between two reads of a peer, and later goes on.
func (f FailureSuite) frozenAfter(t *testing.T) {
	s, reader, dst := f.rig(t)
	other := StartSource(t, f.Spec)
	p, q := Connect(t, reader, s.Remote), Connect(t, reader, other.Remote)
	mustRead(t, p, dst, s)
	s.Freeze()
	err := Read(p, dst, wholeRegion)
	if !f.KernelReads || err != nil {
		kinds(t, "read of a frozen source", err, rdma.ErrTimeout, rdma.ErrQuarantined)
	}
	fresh := f.dst(t)
	mustRead(t, q, fresh, other) // another source of the same reader isn't held up
	s.Thaw()
	mustRead(t, Connect(t, f.Reader(t), s.Remote), fresh, s)
}

func (f FailureSuite) frozenInRead(t *testing.T) {
	s, reader, dst := f.rig(t)
	p := Connect(t, reader, s.Remote)
	mustRead(t, p, dst, s)
	var live []rdma.Transfer
	for range 8 {
		tr, err := p.Read(dst, wholeRegion)
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, tr)
	}
	s.Freeze()
	for _, tr := range live {
		if err := Wait(tr); err != nil {
			kinds(t, "read of a frozen source", err, rdma.ErrTimeout, rdma.ErrQuarantined)
		}
	}
	s.Thaw()
	fresh := f.dst(t)
	mustRead(t, Connect(t, f.Reader(t), s.Remote), fresh, s)
}

func (f FailureSuite) restarted(t *testing.T) {
	s, reader, dst := f.rig(t)
	p := Connect(t, reader, s.Remote)
	mustRead(t, p, dst, s)
	old := s.Remote
	s.Kill()
	again := s.Spec
	again.Listen, again.Seed = s.Remote.Access.Agent, 77
	if f.Spec.Listen == "-" {
		again.Listen = ""
	}
	s2 := StartSource(t, again)
	_, err := connectSoon(reader, old)
	kinds(t, "connect with the old description", err, rdma.ErrStale, rdma.ErrUnreachable)
	kinds(t, "read of the old peer", Read(p, dst, wholeRegion), rdma.ErrStale, rdma.ErrReset, rdma.ErrUnreachable)
	mustRead(t, Connect(t, reader, s2.Remote), dst, s2)
}

func (f FailureSuite) regionWithdrawn(t *testing.T) {
	s, reader, dst := f.rig(t)
	p := Connect(t, reader, s.Remote)
	small := []rdma.Segment{rdma.Contiguous(1, 0, 0, 1<<20)}
	if err := Read(p, dst, small); err != nil {
		t.Fatal(err)
	}
	s.Withdraw(t, 1)
	kinds(t, "read of a withdrawn region", Read(p, dst, small), rdma.ErrRefused)
	mustRead(t, Connect(t, reader, s.Remote), dst, s)
}

// outside: the table says more of the regions than there is, and the source is asked for it. Its own bytes beside the
// regions never come, and right requests are still served.
func (f FailureSuite) outside(t *testing.T) {
	s, reader, dst := f.rig(t)
	lying := s.Remote
	lying.Regions = slices.Clone(s.Remote.Regions)
	lying.Regions[1].Nbytes += 1 << 20
	lying.Regions = append(lying.Regions, rdma.RemoteRegion{Base: lying.Regions[1].Base + 8<<20, Nbytes: 1 << 20})
	for name, seg := range map[string]rdma.Segment{
		"across the end": rdma.Contiguous(1, 1<<20-100, 0, 200),
		"beyond the end": rdma.Contiguous(1, 1<<20, 0, 1000),
		"beside":         rdma.Contiguous(2, 0, 0, 1000),
		"strided out":    {Region: 1, Run: 100, N: [3]int64{1, 1, 3}, SrcStride: [3]int64{0, 0, 1<<19 + 1}, DstStride: [3]int64{0, 0, 100}},
	} {
		p, err := connectSoon(reader, lying)
		if err == nil {
			err = Read(p, dst, []rdma.Segment{seg})
			_ = p.Close()
		}
		kinds(t, name, err, rdma.ErrRefused)
	}
	mustRead(t, Connect(t, reader, s.Remote), dst, s)
}

// damaged: endpoint bytes with a bit flipped, or cut short, are refused or harmless: never wrong bytes, never this
// process's end, and the true ones are still taken afterwards.
func (f FailureSuite) damaged(t *testing.T) {
	s, reader, dst := f.rig(t)
	md := s.Remote.Access.Metadata
	limit := len(md)
	if f.Damageable > 0 {
		limit = min(limit, f.Damageable)
	}
	const tries = 60
	for i := range tries {
		bad := s.Remote
		bad.Access.Metadata = bytes.Clone(md)
		if i%3 == 0 {
			bad.Access.Metadata = bad.Access.Metadata[:i*len(md)/tries]
		} else {
			bit := i * limit * 8 / tries
			bad.Access.Metadata[bit/8] ^= 1 << (bit % 8)
		}
		p, err := connectSoon(reader, bad)
		if err == nil {
			err = Read(p, dst, wholeRegion)
			_ = p.Close()
			if err == nil && !bytes.Equal(dst.Bytes(), s.Bytes(0)) {
				t.Fatalf("try %d: wrong bytes and no error", i)
			}
		}
		if err != nil && rdma.KindOf(err) == 0 {
			t.Errorf("try %d: an error without a kind: %v", i, err)
		}
	}
	mustRead(t, Connect(t, reader, s.Remote), dst, s)
}

// foreign: the description of one source with the access of another, which may be what a mixed-up table says.
func (f FailureSuite) foreign(t *testing.T) {
	s, reader, dst := f.rig(t)
	other := StartSource(t, f.Spec)
	mixed := s.Remote
	mixed.Access = other.Remote.Access
	p, err := connectSoon(reader, mixed)
	if err == nil {
		err = Read(p, dst, wholeRegion)
		_ = p.Close()
	}
	kinds(t, "access of another source", err, rdma.ErrStale, rdma.ErrRefused)
	mixed = s.Remote
	mixed.Access.Transport = "pigeon"
	_, err = connectSoon(reader, mixed)
	kinds(t, "access of another transport", err, rdma.ErrUnavailable)
	mustRead(t, Connect(t, reader, s.Remote), dst, s)
}

// readsOn: after reads that were given up, two hundred more leave memory, descriptors and goroutines flat.
func (f FailureSuite) readsOn(t *testing.T) {
	s, reader, dst := f.rig(t)
	p := Connect(t, reader, s.Remote)
	for range 5 {
		tr, err := p.Read(dst, wholeRegion)
		if err != nil {
			t.Fatal(err)
		}
		tr.Abort()
		if err := Wait(tr); err != nil {
			kinds(t, "aborted read", err, rdma.ErrAborted)
		}
	}
	part := []rdma.Segment{{Run: 4096, N: [3]int64{1, 1, 100}, SrcStride: [3]int64{0, 0, 10_000}, DstStride: [3]int64{0, 0, 4096}}}
	var before usage
	for i := range failureReads {
		if i == failureReads/10 {
			before = measure(t)
		}
		q, err := connectSoon(reader, s.Remote)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := Read(q, dst, part); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := q.Close(); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	before.compare(t, measure(t))
	mustRead(t, p, dst, s)
}

type usage struct {
	files, goroutines int
	heap              uint64
}

func measure(t *testing.T) usage {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return usage{files: len(es), goroutines: runtime.NumGoroutine(), heap: m.HeapAlloc}
}

func (u usage) compare(t *testing.T, after usage) {
	t.Helper()
	if after.files > u.files+4 || after.goroutines > u.goroutines+4 || after.heap > u.heap+4<<20 {
		t.Errorf("descriptors, goroutines, heap bytes: %+v before, %+v after", u, after)
	}
}
