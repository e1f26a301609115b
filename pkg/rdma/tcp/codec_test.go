package tcp

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func TestFramesSurviveTheWire(t *testing.T) {
	t.Parallel()
	h := hello{proof: [32]byte{1, 2}, nonce: [16]byte{3}, incarnation: "life", lease: "receiver-1"}
	if got, err := decodeHello(h.encode()); err != nil || got != h {
		t.Errorf("hello %+v, %v", got, err)
	}
	w := welcome{proof: [32]byte{9}, text: "fine", maxBytes: 5, maxSegments: 6}
	if got, err := decodeWelcome(w.encode()); err != nil || got != w {
		t.Errorf("welcome %+v, %v", got, err)
	}
	a := access{tls: true, pinned: true, token: [32]byte{4}, pin: [32]byte{5}, addresses: []string{"127.0.0.1:1", "[::1]:2"}}
	if got, err := decodeAccess(a.encode()); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("access %+v, %v", got, err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	segs := rdmatest.RandomSegments(r, 500, []int64{1 << 20, 1 << 10}, 1<<22)
	var q request
	if err := q.decode(appendRequest(nil, 77, segs)); err != nil || q.id != 77 || len(q.segs) != len(segs) {
		t.Fatalf("request %d of %d segments, %v", q.id, len(q.segs), err)
	}
	for i, s := range segs {
		s.Dst, s.DstStride = 0, [3]int64{}
		for d := range s.N { // strides of unused dimensions in front don't travel
			if s.N[d] != 1 {
				break
			}
			s.SrcStride[d] = 0
		}
		if q.segs[i] != s {
			t.Fatalf("segment %d is %+v, want %+v", i, q.segs[i], s)
		}
	}
}

// The request of a column slice, byte by byte: what a reader in another language has to send.
func TestRequestGolden(t *testing.T) {
	t.Parallel()
	s := rdma.Segment{Region: 1, Src: 384, Run: 384, N: [3]int64{1, 1, 2048}, SrcStride: [3]int64{0, 0, 1536}}
	golden := strings.Join([]string{
		"07",   // id 7
		"01",   // one segment
		"01",   // region 1
		"8003", // at byte 384
		"8003", // runs of 384 bytes
		"01",   // one outer dimension
		"8010", // of 2048
		"8018", // with a stride of 1536 bytes, zigzag
	}, "")
	if got := hex.EncodeToString(appendRequest(nil, 7, []rdma.Segment{s})); got != golden {
		t.Errorf("got  %s\nwant %s", got, golden)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add(appendRequest(nil, 1, []rdma.Segment{rdma.Contiguous(0, 1, 0, 2), {Region: 3, Run: 1, N: [3]int64{2, 3, 4}, SrcStride: [3]int64{9, 8, 7}}}))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q request
		if q.decode(b) != nil {
			return
		}
		var again request // the same bytes of the source, in the shortest form
		first := appendRequest(nil, q.id, q.segs)
		if err := again.decode(first); err != nil || !bytes.Equal(first, appendRequest(nil, again.id, again.segs)) {
			t.Fatalf("%x decodes to %+v, and that to %+v, %v", b, q, again, err)
		}
		for i := range q.segs { // whatever was decoded is judged without overflow
			_, _ = admitSegment(&q.segs[i], 1<<20, 0)
		}
	})
}

func FuzzDecodeHandshake(f *testing.F) {
	h, w, a := hello{incarnation: "x"}, welcome{maxBytes: 1, maxSegments: 1}, access{addresses: []string{"h:1"}}
	f.Add(h.encode())
	f.Add(w.encode())
	f.Add(a.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHello(b); err == nil && (len(h.incarnation) > maxName || len(h.lease) > maxName) {
			t.Fatalf("hello over its limits: %+v", h)
		}
		if w, err := decodeWelcome(b); err == nil && len(w.text) > maxText {
			t.Fatalf("welcome over its limits: %+v", w)
		}
		if a, err := decodeAccess(b); err == nil && len(a.addresses) > maxAddresses {
			t.Fatalf("access over its limits: %+v", a)
		}
	})
}
