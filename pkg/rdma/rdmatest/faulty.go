package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// FaultKind is what goes wrong.
type FaultKind uint8

const (
	// Corrupt flips one bit of what a read brought, and reports success.
	Corrupt FaultKind = iota + 1
	// Stall lets a read arrive but never says so, until Fault.For has passed (then ErrTimeout) or it is aborted.
	Stall
	// Reset overwrites half of a read's bytes and ends it with ErrReset.
	Reset
	// Refuse ends a read with ErrRefused before anything moves.
	Refuse
	// Vanish makes Connect fail with ErrUnreachable.
	Vanish
	// FalseCompletion reports success at once and brings nothing.
	FalseCompletion
)

// Fault says what goes wrong, where and when. Faults hit reads in the order of their posting.
type Fault struct {
	Kind  FaultKind
	Rank  int           // of the source that is hit; -1: any
	After int           // so many reads of hit sources (connects, for Vanish) go well first
	Count int           // so many are hit then; 0: all
	For   time.Duration // of a Stall; 0: until aborted
	Seed  uint64        // of the places of corruption
	// Injected, if not nil, hears of every fault: the segment and the destination's byte of a Corrupt.
	Injected func(rank int, s rdma.Segment, at int64)
}

var errInjected = errors.New("injected fault")

// Faulty wraps a transport so that faults hit what is read through it. Serving isn't touched.
func Faulty(t rdma.Transport, f Fault) rdma.Transport {
	return &faulty{Transport: t, fault: f, rand: rand.New(rand.NewPCG(f.Seed, 0x5eed))}
}

type faulty struct {
	rdma.Transport
	fault Fault

	mu   sync.Mutex
	seen int
	rand *rand.Rand
}

// due counts one read or connect of a rank, and says whether it is hit.
func (f *faulty) due(rank int, kinds ...FaultKind) bool {
	for _, k := range kinds {
		if k == f.fault.Kind && (f.fault.Rank < 0 || f.fault.Rank == rank) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen++
			n := f.seen - f.fault.After
			return n > 0 && (f.fault.Count == 0 || n <= f.fault.Count)
		}
	}
	return false
}

func (f *faulty) intn(n int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rand.Int64N(n)
}

func (f *faulty) fail(op string, rank int, kind rdma.Kind) error {
	return &rdma.Error{Kind: kind, Op: op, Transport: f.Name(), Rank: rank, Err: errInjected}
}

// Connect implements rdma.Transport.
func (f *faulty) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	if f.due(r.Rank, Vanish) {
		return nil, f.fail("connect", r.Rank, rdma.ErrUnreachable)
	}
	p, err := f.Transport.Connect(ctx, r)
	if err != nil {
		return nil, err
	}
	fp := &faultyPeer{Peer: p, f: f, rank: r.Rank}
	if parts, ok := p.(rdma.PartReader); ok {
		return &faultyPartPeer{fp, parts}, nil
	}
	return fp, nil
}

// faultyPartPeer tells of parts, as what it wraps does, and flips the bit of a Corrupt before the part is looked at.
type faultyPartPeer struct {
	*faultyPeer
	inner rdma.PartReader
}

// PartBytes implements rdma.PartReader.
func (p *faultyPartPeer) PartBytes() int64 { return p.inner.PartBytes() }

// ReadParts implements rdma.PartReader.
func (p *faultyPartPeer) ReadParts(dst *rdma.Memory, parts [][]rdma.Segment, landed func(int) error) (rdma.Transfer, error) {
	if !p.f.due(p.rank, Corrupt, Stall, Reset, Refuse, FalseCompletion) {
		return p.inner.ReadParts(dst, parts, landed)
	}
	if len(parts) > 0 && p.f.fault.Kind == Corrupt {
		bad := int(p.f.intn(int64(len(parts))))
		return p.inner.ReadParts(dst, parts, func(i int) error {
			if i == bad {
				p.flip(dst, parts[i])
			}
			return landed(i)
		})
	}
	if p.f.fault.Injected != nil {
		p.f.fault.Injected(p.rank, rdma.Segment{}, -1)
	}
	var all []rdma.Segment
	for _, segs := range parts {
		all = append(all, segs...)
	}
	t, err := p.inject(dst, all)
	if err != nil {
		return nil, err
	}
	return &lateParts{Transfer: t, parts: len(parts), landed: landed}, nil
}

// lateParts tells of all parts at the end of a transfer.
type lateParts struct {
	rdma.Transfer
	parts  int
	landed func(int) error
	once   sync.Once
	err    error
}

// Wait implements rdma.Transfer.
func (l *lateParts) Wait(ctx context.Context) error {
	if err := l.Transfer.Wait(ctx); err != nil {
		return err
	}
	l.once.Do(func() {
		for i := 0; i < l.parts && l.err == nil; i++ {
			l.err = l.landed(i)
		}
	})
	return l.err
}

type faultyPeer struct {
	rdma.Peer
	f    *faulty
	rank int

	mu   sync.Mutex
	live []*faultyTransfer
}

// Read implements rdma.Peer.
func (p *faultyPeer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	if !p.f.due(p.rank, Corrupt, Stall, Reset, Refuse, FalseCompletion) {
		return p.Peer.Read(dst, segs)
	}
	if p.f.fault.Injected != nil && p.f.fault.Kind != Corrupt {
		p.f.fault.Injected(p.rank, rdma.Segment{}, -1)
	}
	return p.inject(dst, segs)
}

func (p *faultyPeer) inject(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	moved := segs
	switch p.f.fault.Kind {
	case Refuse:
		return nil, p.f.fail("read", p.rank, rdma.ErrRefused)
	case FalseCompletion:
		moved = nil
	}
	t, err := p.Peer.Read(dst, moved)
	if err != nil || p.f.fault.Kind == FalseCompletion {
		return t, err
	}
	release, err := dst.Hold()
	if err != nil {
		return nil, fmt.Errorf("hold the destination of an injected fault: %w", err)
	}
	ft := &faultyTransfer{Transfer: t, p: p, dst: dst, segs: segs, done: make(chan struct{}), aborted: make(chan struct{})}
	p.mu.Lock()
	p.live = append(p.live, ft)
	p.mu.Unlock()
	go ft.run(release)
	return ft, nil
}

// Close implements rdma.Peer.
func (p *faultyPeer) Close() error {
	p.mu.Lock()
	live := p.live
	p.live = nil
	p.mu.Unlock()
	for _, t := range live {
		t.Abort()
		<-t.done
	}
	return p.Peer.Close()
}

// faultyTransfer lets the real transfer end, then does harm.
type faultyTransfer struct {
	rdma.Transfer
	p       *faultyPeer
	dst     *rdma.Memory
	segs    []rdma.Segment
	done    chan struct{}
	aborted chan struct{}
	once    sync.Once
	err     error
}

func (t *faultyTransfer) run(release func()) {
	defer close(t.done)
	defer release()
	if t.err = t.Transfer.Wait(context.Background()); t.err != nil {
		return
	}
	switch t.p.f.fault.Kind {
	case Corrupt:
		t.p.flip(t.dst, t.segs)
	case Stall:
		t.stall()
	case Reset:
		for i := range t.segs[:(len(t.segs)+1)/2] {
			clear(t.dst.Bytes()[t.segs[i].Dst:][:t.segs[i].Run])
		}
		t.err = t.p.f.fail("read", t.p.rank, rdma.ErrReset)
	}
}

// flip changes one bit of a byte that the read brought.
func (p *faultyPeer) flip(dst *rdma.Memory, segs []rdma.Segment) {
	if len(segs) == 0 {
		return
	}
	s := segs[p.f.intn(int64(len(segs)))]
	at := s.Dst + p.f.intn(s.Run)
	for d := range s.N {
		at += p.f.intn(s.N[d]) * s.DstStride[d]
	}
	dst.Bytes()[at] ^= 1 << p.f.intn(8)
	if p.f.fault.Injected != nil {
		p.f.fault.Injected(p.rank, s, at)
	}
}

func (t *faultyTransfer) stall() {
	var after <-chan time.Time
	if t.p.f.fault.For > 0 {
		timer := time.NewTimer(t.p.f.fault.For)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-after:
		t.err = t.p.f.fail("read", t.p.rank, rdma.ErrTimeout)
	case <-t.aborted:
		t.err = t.p.f.fail("read", t.p.rank, rdma.ErrAborted)
	}
}

// Abort implements rdma.Transfer.
func (t *faultyTransfer) Abort() {
	t.once.Do(func() {
		close(t.aborted)
		t.Transfer.Abort()
	})
}

// Wait implements rdma.Transfer.
func (t *faultyTransfer) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the read from rank %d over %s: %w", t.p.rank, t.p.f.Name(), context.Cause(ctx))
	}
}
