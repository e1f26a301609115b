package tcp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/pending"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/strided"
)

// chunkBytes is what one request asks for: long enough to hide its round trip, short enough to spread over lanes.
const chunkBytes = 4 << 20

// Connect implements rdma.Transport: one connection is made and proven, further ones follow with the first reads.
func (t *Transport) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	d := dialer{cfg: &t.cfg, remote: &r, host: t.host}
	var err error
	switch {
	case r.Access.Transport != Name:
		return nil, d.fail(rdma.ErrUnavailable, fmt.Errorf("access is of %q", r.Access.Transport))
	case len(r.Incarnation) > maxName || len(r.Lease) > maxName:
		return nil, d.fail(rdma.ErrRefused, fmt.Errorf("incarnation or lease over %d bytes", maxName))
	}
	if d.access, err = decodeAccess(r.Access.Metadata); err != nil {
		return nil, d.fail(rdma.ErrRefused, fmt.Errorf("decode access: %w", err))
	}
	if t.cfg.ClientTLS != nil && !d.access.tls {
		return nil, d.fail(rdma.ErrUnavailable, errors.New("TLS is required here and not offered there"))
	}
	c, w, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	p := newPeer(t, d, w)
	if !t.peers.Add(p) {
		_ = c.Close()
		return nil, d.fail(rdma.ErrRefused, rdma.ErrClosed)
	}
	p.start(c)
	return p, nil
}

// peer spreads chunks of reads over its lanes.
type peer struct {
	t      *Transport
	remote rdma.Remote
	dialer dialer
	ctx    context.Context // ends with the peer; for dials of lanes
	cancel context.CancelFunc
	live   pending.Set
	lanes  []*lane
	wg     sync.WaitGroup

	maxBytes int64 // of one request
	maxSegs  int

	mu     sync.Mutex
	wake   *sync.Cond
	queue  []*job
	nextID uint64
	closed bool
}

// job is one request to be made, for one or more parts of the batch, in order.
type job struct {
	id    uint64
	t     *pending.Transfer
	dst   []byte
	chunk strided.Chunk
	parts []jobPart
	told  int   // of the parts: they have landed, and were told of
	found error // what the transfer's owner said to one of them, first
}

// jobPart is the piece of a part of the batch that a job brings.
type jobPart struct {
	part int
	end  int // one past its last segment, in the chunk
}

// add appends a piece of a part.
func (j *job) add(part int, c strided.Chunk) {
	j.chunk.Segs, j.chunk.Nbytes = append(j.chunk.Segs, c.Segs...), j.chunk.Nbytes+c.Nbytes
	j.parts = append(j.parts, jobPart{part, len(j.chunk.Segs)})
}

// asked is what the server is asked for: the same bytes in the same order, in as few segments as they are without the ends of
// parts, which are the reader's business. Each segment of the server's is a write of its own.
func (j *job) asked() []rdma.Segment {
	if len(j.parts) < 2 {
		return j.chunk.Segs
	}
	return strided.Chunks(j.chunk.Segs, maxPayload, len(j.chunk.Segs)+1)[0].Segs
}

// landed tells of the parts that end with a segment.
func (j *job) landed(segs int) {
	for j.told < len(j.parts) && j.parts[j.told].end == segs {
		if err := j.t.Landed(j.parts[j.told].part); err != nil && j.found == nil {
			j.found = err
		}
		j.told++
	}
}

// rest leaves what has not landed, for another connection. What was looked at must not be written again: a source may have
// changed since.
func (j *job) rest() {
	if j.told == 0 {
		return
	}
	from := j.parts[j.told-1].end
	next := job{id: j.id, t: j.t, dst: j.dst, found: j.found, parts: j.parts[j.told:]}
	next.chunk.Segs = j.chunk.Segs[from:]
	for i := range next.chunk.Segs {
		next.chunk.Nbytes += next.chunk.Segs[i].Nbytes()
	}
	for i := range next.parts {
		next.parts[i].end -= from
	}
	*j = next
}

func newPeer(t *Transport, d dialer, w welcome) *peer {
	p := &peer{t: t, remote: *d.remote, dialer: d}
	p.dialer.remote = &p.remote
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wake = sync.NewCond(&p.mu)
	p.maxBytes = min(chunkBytes, w.maxBytes)
	p.maxSegs = int(min(maxSegments, w.maxSegments, math.MaxInt32))
	for range t.cfg.Conns {
		p.lanes = append(p.lanes, &lane{p: p})
	}
	return p
}

// start gives the proven connection to the first lane.
func (p *peer) start(c lifeline) {
	p.lanes[0].conn, p.lanes[0].used = c, time.Now()
	for _, l := range p.lanes {
		p.wg.Go(l.run)
	}
}

// Read implements rdma.Peer.
func (p *peer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	return p.ReadParts(dst, [][]rdma.Segment{segs}, nil)
}

// ReadParts implements rdma.PartReader. Parts are told of in the middle of an answer; while a connection's goroutine looks at
// one, the kernel goes on receiving for it.
func (p *peer) ReadParts(dst *rdma.Memory, parts [][]rdma.Segment, landed func(int) error) (rdma.Transfer, error) {
	if dst.Backing() == rdma.Foreign {
		return nil, fail("read", p.remote.Rank, rdma.ErrUnavailable, errors.New("tcp moves host memory only"))
	}
	var total int64
	for _, segs := range parts {
		nbytes, err := rdma.CheckAll(segs, p.remote.Regions, dst.Len())
		if err != nil {
			return nil, fail("read", p.remote.Rank, rdma.ErrRefused, err)
		}
		total += nbytes
	}
	jobs, counts := p.jobs(dst.Bytes(), parts)
	t, err := pending.New(&p.live, Name, p.remote.Rank, dst, len(jobs), p.interrupt)
	if err != nil {
		return nil, err
	}
	t.SetCeiling(total, p.t.cfg.Ceiling)
	t.SetParts(counts, landed)
	p.post(t, jobs)
	return t, nil
}

// partBytes: what the kernel copies is in the nearest caches for this long, and a part of an answer costs next to nothing.
const partBytes = 128 << 10

// PartBytes implements rdma.PartReader.
func (p *peer) PartBytes() int64 { return partBytes }

// jobs groups parts to requests within the server's limits, and counts the pieces of each.
func (p *peer) jobs(dst []byte, parts [][]rdma.Segment) (jobs []*job, counts []int32) {
	counts = make([]int32, len(parts))
	var cur *job
	for i, segs := range parts {
		for _, c := range strided.Chunks(segs, p.maxBytes, p.maxSegs) {
			if cur == nil || cur.chunk.Nbytes+c.Nbytes > p.maxBytes || len(cur.chunk.Segs)+len(c.Segs) > p.maxSegs {
				cur = &job{dst: dst}
				jobs = append(jobs, cur)
			}
			cur.add(i, c)
			counts[i]++
		}
	}
	return jobs, counts
}

func (p *peer) post(t *pending.Transfer, jobs []*job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range jobs {
		p.nextID++
		j.id, j.t = p.nextID, t
	}
	p.queue = append(p.queue, jobs...)
	p.wake.Broadcast()
}

// next takes a job. It waits for one where wait is set; nil means none, or the peer's end.
func (p *peer) next(wait bool) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	for wait && len(p.queue) == 0 && !p.closed {
		p.wake.Wait()
	}
	if len(p.queue) == 0 {
		return nil
	}
	j := p.queue[0]
	p.queue = p.queue[1:]
	return j
}

// putBack returns a job whose connection was given up for another transfer's sake.
func (p *peer) putBack(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append([]*job{j}, p.queue...)
	p.wake.Signal()
}

// interrupt wakes the lanes that work on an aborted transfer.
func (p *peer) interrupt(t *pending.Transfer) {
	for _, l := range p.lanes {
		l.interrupt(t)
	}
}

// Close implements rdma.Peer.
func (p *peer) Close() error {
	live := p.live.CloseAll()
	p.cancel()
	for _, t := range live {
		<-t.Finished()
	}
	p.mu.Lock()
	p.closed = true
	p.wake.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
	p.t.peers.Forget(p)
	return nil
}
