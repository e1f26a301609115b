package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

func withdrawn(t *testing.T, f Factory) {
	g := newRig(t, f)
	if err := g.src[1].Close(); !errors.Is(err, rdma.ErrBusy) {
		t.Fatalf("close of registered memory: %v, want busy", err)
	}
	for range 2 {
		if err := g.reg[1].Close(); err != nil {
			t.Fatalf("withdraw: %v", err)
		}
	}
	if err := Read(g.peer, g.dst, []rdma.Segment{rdma.Contiguous(1, 0, 0, 10)}); !errors.Is(err, rdma.ErrRefused) {
		t.Fatalf("read of a withdrawn region: %v, want refused", err)
	}
	CloseMemory(t, g.src[1])
	if err := Read(g.peer, g.dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 10)}); err != nil {
		t.Fatalf("read of the other region: %v", err)
	}
}

// endOfWait: a context ends the wait, and the transfer goes on.
func endOfWait(t *testing.T, f Factory) {
	g := newRig(t, f)
	segs := []rdma.Segment{rdma.Contiguous(0, 0, 0, rigRegion)}
	tr, err := g.peer.Read(g.dst, segs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tr.Wait(ctx); err != nil && (!errors.Is(err, context.Canceled) || rdma.KindOf(err) != 0) {
		t.Fatalf("wait under an ended context: %v", err)
	}
	for range 2 {
		if err := Wait(tr); err != nil {
			t.Fatalf("wait again: %v", err)
		}
	}
	want := bytes.Clone(g.dst.Bytes())
	Apply(want, [][]byte{g.src[0].Bytes()}, segs)
	same(t, g.dst.Bytes(), want, segs)
}

func abort(t *testing.T, f Factory) {
	g := newRig(t, f)
	for i := range 20 {
		var live []rdma.Transfer
		for range 4 {
			tr, err := g.peer.Read(g.dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, rigRegion)})
			if err != nil {
				t.Fatal(err)
			}
			live = append(live, tr)
		}
		live[i%4].Abort()
		live[i%4].Abort()
		for j, tr := range live {
			if err := Wait(tr); err != nil && (j != i%4 || !errors.Is(err, rdma.ErrAborted)) {
				t.Fatalf("round %d, transfer %d of which %d was aborted: %v", i, j, i%4, err)
			}
		}
	}
	if n := g.dst.Holds(); n != 0 {
		t.Fatalf("%d holds are left on the destination", n)
	}
	g.check(t, []rdma.Segment{rdma.Contiguous(0, 5, 5, 1<<20)})
}

func closeInFlight(t *testing.T, f Factory) {
	g := newRig(t, f)
	var live []rdma.Transfer
	for range 8 {
		tr, err := g.peer.Read(g.dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, rigRegion)})
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, tr)
	}
	if err := g.peer.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if n := g.dst.Holds(); n != 0 {
		t.Fatalf("%d holds are left on the destination after the peer's end", n)
	}
	for _, tr := range live {
		if err := Wait(tr); err != nil && !errors.Is(err, rdma.ErrAborted) {
			t.Errorf("transfer of a closed peer: %v, want aborted or done", err)
		}
	}
	if _, err := g.peer.Read(g.dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 1)}); !errors.Is(err, rdma.ErrRefused) {
		t.Errorf("read of a closed peer: %v, want refused", err)
	}
}

func sourceClosed(t *testing.T, f Factory) {
	g := newRig(t, f)
	g.check(t, []rdma.Segment{rdma.Contiguous(0, 0, 0, 100)})
	for range 2 {
		if err := g.Source.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	err := Read(g.peer, g.dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 100)})
	if k := rdma.KindOf(err); k != rdma.ErrReset && k != rdma.ErrRefused && k != rdma.ErrUnreachable {
		t.Errorf("read after the source's end: %v, want reset, refused or unreachable", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	_, err = g.Reader.Connect(ctx, g.remote)
	if k := rdma.KindOf(err); k != rdma.ErrUnreachable && k != rdma.ErrStale && k != rdma.ErrRefused {
		t.Errorf("connect after the source's end: %v, want unreachable, stale or refused", err)
	}
}

func closedEnds(t *testing.T, f Factory) {
	g := newRig(t, f)
	for range 2 {
		if err := g.Reader.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	if _, err := g.peer.Read(g.dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, 1)}); !errors.Is(err, rdma.ErrRefused) {
		t.Errorf("read through a closed transport: %v, want refused", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	if p, err := g.Reader.Connect(ctx, g.remote); !errors.Is(err, rdma.ErrRefused) {
		t.Errorf("connect through a closed transport: %v, %v, want refused", p, err)
	}
	if _, err := g.Reader.Register(g.dst); !errors.Is(err, rdma.ErrRefused) {
		t.Errorf("register with a closed transport: %v, want refused", err)
	}
	other := Alloc(t, 10, 0)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Source.Register(other); !errors.Is(err, rdma.ErrRefused) {
		t.Errorf("register closed memory: %v, want refused", err)
	}
}

// staysCurrent: a read sees what the source's memory holds now, not what it held at the connect or the last read.
func staysCurrent(t *testing.T, f Factory) {
	g := newRig(t, f)
	for i := range 5 {
		Fill(g.src[0].Bytes(), uint64(1000+i))
		g.check(t, []rdma.Segment{rdma.Contiguous(0, 0, 0, rigRegion)})
	}
}
