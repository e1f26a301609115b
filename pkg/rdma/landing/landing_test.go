package landing

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/inproc"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

const nbytes = 4 << 20

// rig is a peer over a transport that tells of parts, or over one that doesn't.
func rig(t *testing.T, tells bool) (p rdma.Peer, src, dst *rdma.Memory) {
	t.Helper()
	src, dst = rdmatest.Alloc(t, nbytes, 1), rdmatest.Alloc(t, nbytes, 2)
	var tr rdma.Transport
	var life string
	if tells {
		l, err := local.New(local.Config{})
		if err != nil {
			t.Fatal(err)
		}
		tr, life = l, l.Incarnation()
	} else {
		l := inproc.NewNet().New("life")
		tr, life = l, "life"
	}
	reg := rdmatest.Register(t, tr, src)
	t.Cleanup(func() { _ = tr.Close() })
	return rdmatest.Connect(t, tr, rdmatest.RemoteOf(t, rdmatest.Pair{Source: tr, Incarnation: life}, reg)), src, dst
}

// Whatever is waited for is there when it is looked at, once, with small parts and large, over peers of both kinds.
func TestWhatIsLookedAtHasCome(t *testing.T) {
	t.Parallel()
	for _, tells := range []bool{true, false} {
		p, src, dst := rig(t, tells)
		r := rand.New(rand.NewPCG(1, 2))
		for range 30 {
			rdmatest.Fill(dst.Bytes(), r.Uint64())
			segs := rdmatest.RandomSegments(r, 1+r.IntN(9), []int64{nbytes}, nbytes)
			want := bytes.Clone(dst.Bytes())
			rdmatest.Apply(want, [][]byte{src.Bytes()}, segs)
			read := New(segs)
			looks := 1 + r.IntN(40)
			var seen atomic.Int32
			for range looks {
				s := segs[r.IntN(len(segs))]
				lo, hi := s.Dst, s.Dst+s.Run
				read.When(lo, hi, func() error {
					seen.Add(1)
					if !bytes.Equal(dst.Bytes()[lo:hi], want[lo:hi]) {
						return errors.New("looked at too early")
					}
					return nil
				})
			}
			tr, err := read.Post(p, dst)
			if err != nil {
				t.Fatal(err)
			}
			if err := rdmatest.Wait(tr); err != nil {
				t.Fatal(err)
			}
			if int(seen.Load()) != looks || !bytes.Equal(dst.Bytes(), want) {
				t.Fatalf("tells %t: %d of %d looks, bytes right: %t", tells, seen.Load(), looks, bytes.Equal(dst.Bytes(), want))
			}
		}
	}
}

func TestAnErrorOfALookIsTheTransfers(t *testing.T) {
	t.Parallel()
	no := errors.New("wrong")
	for _, tells := range []bool{true, false} {
		p, _, dst := rig(t, tells)
		for _, at := range []int64{0, nbytes / 2} { // the second is brought by no part
			read := New([]rdma.Segment{rdma.Contiguous(0, 0, 0, 1<<20)})
			read.When(at, at+1, func() error { return no })
			tr, err := read.Post(p, dst)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // to wait again is allowed
				if err := tr.Wait(t.Context()); !errors.Is(err, no) {
					t.Errorf("tells %t, at %d: %v", tells, at, err)
				}
			}
		}
	}
}

func TestNothingIsLookedAtOfAFailedRead(t *testing.T) {
	t.Parallel()
	p, _, dst := rig(t, true)
	read := New([]rdma.Segment{rdma.Contiguous(0, nbytes, 0, 4096)})
	read.When(0, 4096, func() error { t.Error("looked at"); return nil })
	if _, err := read.Post(p, dst); rdma.KindOf(err) != rdma.ErrRefused {
		t.Errorf("%v", err)
	}
}

func TestPartsFitTheirBound(t *testing.T) {
	t.Parallel()
	column := rdma.Segment{Run: 384, N: [3]int64{1, 1, 5000}, SrcStride: [3]int64{0, 0, 1536}, DstStride: [3]int64{0, 0, 384}}
	const most = 256 << 10
	read := New([]rdma.Segment{rdma.Contiguous(0, 0, 2<<20, 1<<20), column})
	read.cut(most)
	var sum int64
	for _, p := range read.parts {
		var n int64
		for i := range p.segs {
			n += p.segs[i].Nbytes()
		}
		if sum += n; n > most || p.lo >= p.hi {
			t.Errorf("part of %d bytes in [%d, %d)", n, p.lo, p.hi)
		}
	}
	if want := int64(1<<20 + 384*5000); sum != want {
		t.Errorf("%d bytes in %d parts, want %d", sum, len(read.parts), want)
	}
}
