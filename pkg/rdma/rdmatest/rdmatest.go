// Package rdmatest is the conformance suite of transports, and a wrapper that injects faults into any of them.
//
// A transport that passes Conformance behaves like the others for every caller that keeps the contract. Its tests give
// a Factory; the suite makes fresh pairs from it and compares what arrives with the definition of a segment, byte by
// byte, including the bytes that must not change.
package rdmatest

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Deadline bounds every wait of the suite.
const Deadline = 20 * time.Second

// Pair is a serving and a reading endpoint. They may be one process's, and even one transport.
type Pair struct {
	Source, Reader rdma.Transport
	Incarnation    string       // of the source
	Backing        rdma.Backing // of the memory that the source serves
}

// Factory makes a fresh pair that can reach each other; both are closed by cleanups of t, or before.
type Factory func(t testing.TB) Pair

// Alloc makes shared memory that is closed after the test, with bytes drawn from seed.
func Alloc(t testing.TB, nbytes int64, seed uint64) *rdma.Memory {
	t.Helper()
	return AllocAs(t, nbytes, seed, rdma.AllocOptions{})
}

// AllocAs is Alloc with a choice of memory. A named file gets a path in the test's folder.
func AllocAs(t testing.TB, nbytes int64, seed uint64, o rdma.AllocOptions) *rdma.Memory {
	t.Helper()
	if o.Backing == rdma.File && o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "memory")
	}
	m, err := rdma.Alloc(nbytes, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { CloseMemory(t, m) })
	Fill(m.Bytes(), seed)
	return m
}

// CloseMemory closes m and fails the test if somebody still holds it after a while.
func CloseMemory(t testing.TB, m *rdma.Memory) {
	t.Helper()
	var err error
	if !Eventually(func() bool { err = m.Close(); return err == nil }) {
		t.Errorf("memory is still held: %v", err)
	}
}

// Fill draws bytes from seed.
func Fill(b []byte, seed uint64) {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), 1})
	_, _ = r.Read(b) // documented never to fail
}

// Apply is the definition of a batch: byte for byte, with no regard to speed.
func Apply(dst []byte, regions [][]byte, segs []rdma.Segment) {
	for _, s := range segs {
		for i := range s.N[0] {
			for j := range s.N[1] {
				for k := range s.N[2] {
					from := s.Src + i*s.SrcStride[0] + j*s.SrcStride[1] + k*s.SrcStride[2]
					to := s.Dst + i*s.DstStride[0] + j*s.DstStride[1] + k*s.DstStride[2]
					copy(dst[to:to+s.Run], regions[s.Region][from:])
				}
			}
		}
	}
}

// RandomSegments draws n segments of 0 to 3 outer dimensions inside regions, whose destinations don't overlap: they
// lie in slots of dstLen/n bytes each.
func RandomSegments(r *rand.Rand, n int, regionLens []int64, dstLen int64) []rdma.Segment {
	slot := dstLen / int64(n)
	var out []rdma.Segment
	for i := range n {
		region := r.IntN(len(regionLens))
		s := randomShape(r, slot)
		srcSpan, dstSpan := s.SrcEnd(), s.DstEnd()
		if srcSpan > regionLens[region] || dstSpan > slot {
			s = rdma.Contiguous(0, 0, 0, 1+r.Int64N(min(slot, regionLens[region])))
			srcSpan, dstSpan = s.Run, s.Run
		}
		s.Region = uint32(region)
		s.Src = r.Int64N(regionLens[region] - srcSpan + 1)
		s.Dst = int64(i)*slot + r.Int64N(slot-dstSpan+1)
		out = append(out, s)
	}
	return out
}

func randomShape(r *rand.Rand, budget int64) rdma.Segment {
	s := rdma.Contiguous(0, 0, 0, 1+r.Int64N(max(1, budget/int64(1+r.IntN(64)))))
	ss, ds := s.Run, s.Run
	for d := 2; d >= 2-r.IntN(3) && d >= 0; d-- {
		s.N[d] = 1 + r.Int64N(6)
		s.SrcStride[d] = ss + r.Int64N(2)*r.Int64N(100)
		s.DstStride[d] = ds + r.Int64N(2)*r.Int64N(100)
		ss, ds = s.SrcStride[d]*s.N[d], s.DstStride[d]*s.N[d]
	}
	return s
}

// RemoteOf describes a source with the regions given, as a reader would find it in a table.
func RemoteOf(t testing.TB, p Pair, regions ...rdma.Region) rdma.Remote {
	t.Helper()
	a, err := p.Source.Access()
	if err != nil {
		t.Fatal(err)
	}
	host, err := rdma.HostID()
	if err != nil {
		t.Fatal(err)
	}
	r := rdma.Remote{Rank: 3, Host: host, Incarnation: p.Incarnation, Access: a}
	for _, g := range regions {
		r.Regions = append(r.Regions, g.Describe())
	}
	return r
}

// Register registers m or fails the test.
func Register(t testing.TB, tr rdma.Transport, m *rdma.Memory) rdma.Region {
	t.Helper()
	r, err := tr.Register(m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Connect connects within the deadline or fails the test; the peer is closed by a cleanup.
func Connect(t testing.TB, tr rdma.Transport, r rdma.Remote) rdma.Peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	p, err := tr.Connect(ctx, r)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close peer: %v", err)
		}
	})
	return p
}

// Read posts and waits within the deadline.
func Read(p rdma.Peer, dst *rdma.Memory, segs []rdma.Segment) error {
	tr, err := p.Read(dst, segs)
	if err != nil {
		return err
	}
	return Wait(tr)
}

// Wait waits within the deadline.
func Wait(tr rdma.Transfer) error {
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	return tr.Wait(ctx)
}

// Eventually asks until cond holds, and says whether it did within the deadline. It is for states of the kernel and of
// other processes, which send no event.
func Eventually(cond func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(Deadline)
	defer deadline.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}
