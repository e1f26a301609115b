package tcp

import (
	"errors"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/pending"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// A request that is asked anew, since its connection was given up for another's sake, asks for nothing that was looked at:
// what would come now is what nobody looks at any more.
func TestWhatHasLandedIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	p := &peer{maxBytes: chunkBytes, maxSegs: maxSegments}
	run := func(at int64) rdma.Segment { return rdma.Contiguous(0, at, at, 100) }
	jobs, counts := p.jobs(nil, [][]rdma.Segment{{run(0), run(1000)}, {run(2000)}, {run(3000), run(4000)}})
	if len(jobs) != 1 || len(counts) != 3 || counts[0] != 1 {
		t.Fatalf("%d requests, counts %v", len(jobs), counts)
	}
	var told []int
	no := errors.New("wrong")
	dst := rdmatest.Alloc(t, 4096, 1)
	var live pending.Set
	tr, err := pending.New(&live, Name, 0, dst, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr.SetParts(counts, func(part int) error {
		if told = append(told, part); part == 0 {
			return no
		}
		return nil
	})
	j := jobs[0]
	j.t = tr
	j.landed(1) // in the middle of the first part
	j.landed(2)
	j.rest()
	if len(j.chunk.Segs) != 3 || j.chunk.Nbytes != 300 || j.chunk.Segs[0].Src != 2000 {
		t.Errorf("left to be asked for: %+v", j.chunk)
	}
	j.landed(1)
	j.landed(3)
	if len(told) != 3 || told[0] != 0 || told[1] != 1 || told[2] != 2 {
		t.Errorf("told of parts %v, want each once", told)
	}
	j.rest()
	if len(j.chunk.Segs) != 0 || j.chunk.Nbytes != 0 || len(j.parts) != 0 {
		t.Errorf("all has landed, and asked for is %+v", j.chunk)
	}
	tr.Done(j.found)
	if err := rdmatest.Wait(tr); !errors.Is(err, no) {
		t.Errorf("what was found wrong is forgotten: %v", err)
	}
}

// Parts are grouped within the server's limits, in order.
func TestPartsShareRequests(t *testing.T) {
	t.Parallel()
	p := &peer{maxBytes: 1000, maxSegs: 4}
	var parts [][]rdma.Segment
	for i := range int64(10) {
		parts = append(parts, []rdma.Segment{rdma.Contiguous(0, 10000*i, 300*i, 300)})
	}
	parts = append(parts, []rdma.Segment{rdma.Contiguous(0, 0, 5000, 2500)}) // more than a request
	jobs, counts := p.jobs(nil, parts)
	var nbytes int64
	for _, j := range jobs {
		if nbytes += j.chunk.Nbytes; j.chunk.Nbytes > 1000 || len(j.chunk.Segs) > 4 || j.parts[len(j.parts)-1].end != len(j.chunk.Segs) {
			t.Errorf("request of %d bytes, %d segments, parts %v", j.chunk.Nbytes, len(j.chunk.Segs), j.parts)
		}
	}
	if nbytes != 10*300+2500 || counts[10] != 3 || len(jobs) != 7 {
		t.Errorf("%d bytes in %d requests, counts %v", nbytes, len(jobs), counts)
	}
}

// The server is asked for the bytes of parts that continue each other in one segment.
func TestPartsAreAskedForTogether(t *testing.T) {
	t.Parallel()
	p := &peer{maxBytes: chunkBytes, maxSegs: maxSegments}
	var parts [][]rdma.Segment
	for i := range int64(8) {
		parts = append(parts, []rdma.Segment{rdma.Contiguous(0, 1000*i, 1000*i, 1000)})
	}
	parts = append(parts, []rdma.Segment{rdma.Contiguous(1, 8000, 8000, 10)})
	jobs, _ := p.jobs(nil, parts)
	asked := jobs[0].asked()
	if len(jobs) != 1 || len(asked) != 2 || asked[0].Nbytes() != 8000 || asked[1].Region != 1 {
		t.Errorf("%d requests, asked for %+v", len(jobs), asked)
	}
	jobs[0].told = 7
	jobs[0].rest()
	if asked := jobs[0].asked(); len(asked) != 2 || asked[0].Src != 7000 || asked[0].Run != 1000 {
		t.Errorf("of the rest is asked for %+v", asked)
	}
}
