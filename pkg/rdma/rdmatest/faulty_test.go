package rdmatest_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/inproc"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inprocPair(testing.TB) rdmatest.Pair {
	n := inproc.NewNet()
	id := rdma.NewIncarnation()
	return rdmatest.Pair{Source: n.New(id), Reader: n.New(rdma.NewIncarnation()), Incarnation: id}
}

// A wrapper whose fault isn't due yet is a conforming transport.
func TestFaultyConformsUntilItsFaultIsDue(t *testing.T) {
	t.Parallel()
	rdmatest.Conformance(t, func(t testing.TB) rdmatest.Pair {
		p := inprocPair(t)
		p.Reader = rdmatest.Faulty(p.Reader, rdmatest.Fault{Kind: rdmatest.Corrupt, Rank: -1, After: 1 << 30})
		return p
	})
}

func faultyRig(t *testing.T, f rdmatest.Fault) (peer rdma.Peer, src, dst *rdma.Memory) {
	p := inprocPair(t)
	src, dst = rdmatest.Alloc(t, 5000, 1), rdmatest.Alloc(t, 5000, 2)
	reg := rdmatest.Register(t, p.Source, src)
	reader := rdmatest.Faulty(p.Reader, f)
	t.Cleanup(func() { _ = errors.Join(p.Source.Close(), reader.Close()) })
	return rdmatest.Connect(t, reader, rdmatest.RemoteOf(t, p, reg)), src, dst
}

var whole = []rdma.Segment{{Region: 0, Run: 10, N: [3]int64{1, 5, 100}, SrcStride: [3]int64{0, 1000, 10}, DstStride: [3]int64{0, 1000, 10}}}

func TestCorruptFlipsOneBitAndTellsWhere(t *testing.T) {
	t.Parallel()
	var at []int64
	peer, src, dst := faultyRig(t, rdmatest.Fault{
		Kind: rdmatest.Corrupt, Rank: -1, After: 1, Count: 1, Seed: 5,
		Injected: func(_ int, _ rdma.Segment, i int64) { at = append(at, i) },
	})
	for i, want := range []int{0, 1, 0} {
		if err := rdmatest.Read(peer, dst, whole); err != nil {
			t.Fatal(err)
		}
		var differ []int64
		for j := range dst.Bytes() {
			if dst.Bytes()[j] != src.Bytes()[j] {
				differ = append(differ, int64(j))
			}
		}
		if len(differ) != want || want == 1 && (len(at) != 1 || at[0] != differ[0]) {
			t.Fatalf("read %d: bytes %v differ, injected at %v", i, differ, at)
		}
	}
}

func TestFaultsEndAsTheirKindSays(t *testing.T) {
	t.Parallel()
	for kind, want := range map[rdmatest.FaultKind]rdma.Kind{
		rdmatest.Reset:  rdma.ErrReset,
		rdmatest.Refuse: rdma.ErrRefused,
		rdmatest.Stall:  rdma.ErrTimeout,
	} {
		peer, _, dst := faultyRig(t, rdmatest.Fault{Kind: kind, Rank: 3, Count: 1, For: time.Millisecond})
		if err := rdmatest.Read(peer, dst, whole); !errors.Is(err, want) {
			t.Errorf("fault %d: %v, want %v", kind, err, want)
		}
		if err := rdmatest.Read(peer, dst, whole); err != nil {
			t.Errorf("after fault %d: %v", kind, err)
		}
	}
}

func TestFalseCompletionBringsNothing(t *testing.T) {
	t.Parallel()
	peer, _, dst := faultyRig(t, rdmatest.Fault{Kind: rdmatest.FalseCompletion, Rank: -1})
	before := bytes.Clone(dst.Bytes())
	if err := rdmatest.Read(peer, dst, whole); err != nil || !bytes.Equal(before, dst.Bytes()) {
		t.Fatalf("error %v, destination changed: %v", err, !bytes.Equal(before, dst.Bytes()))
	}
}

func TestStallHoldsUntilAborted(t *testing.T) {
	t.Parallel()
	peer, _, dst := faultyRig(t, rdmatest.Fault{Kind: rdmatest.Stall, Rank: -1})
	tr, err := peer.Read(dst, whole)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if err := tr.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || rdma.KindOf(err) != 0 {
		t.Fatalf("wait: %v", err)
	}
	if err := dst.Close(); !errors.Is(err, rdma.ErrBusy) {
		t.Fatalf("close of the destination: %v, want busy", err)
	}
	tr.Abort()
	if err := rdmatest.Wait(tr); !errors.Is(err, rdma.ErrAborted) {
		t.Fatalf("after the abort: %v", err)
	}
}

func TestVanish(t *testing.T) {
	t.Parallel()
	p := inprocPair(t)
	reader := rdmatest.Faulty(p.Reader, rdmatest.Fault{Kind: rdmatest.Vanish, Rank: -1, Count: 1})
	r := rdmatest.RemoteOf(t, p)
	if _, err := reader.Connect(t.Context(), r); !errors.Is(err, rdma.ErrUnreachable) {
		t.Fatalf("first connect: %v", err)
	}
	rdmatest.Connect(t, reader, r)
}
