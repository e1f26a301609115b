package local

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/pending"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/strided"
)

// peer is one publisher's process.
type peer struct {
	t      *Transport
	remote rdma.Remote
	access access
	pidfd  int
	view   view
	live   pending.Set

	mu   sync.Mutex
	maps []*source // by region; nil: not yet needed
	gone bool
}

// chunkBytes is one worker's job: long against a queue's cost, short enough to spread a batch over all cores.
const chunkBytes = 1 << 20

// Read implements rdma.Peer.
func (p *peer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	return p.ReadParts(dst, [][]rdma.Segment{segs}, nil)
}

// job is what one worker copies in one go, for one part of the batch.
type job struct {
	strided.Chunk
	part int
}

// ReadParts implements rdma.PartReader.
func (p *peer) ReadParts(dst *rdma.Memory, parts [][]rdma.Segment, landed func(int) error) (rdma.Transfer, error) {
	if dst.Backing() == rdma.Foreign {
		return nil, p.fail(rdma.ErrUnavailable, errors.New("local moves host memory only"))
	}
	var used []uint32
	for _, segs := range parts {
		if _, err := rdma.CheckAll(segs, p.remote.Regions, dst.Len()); err != nil {
			return nil, p.fail(rdma.ErrRefused, err)
		}
		used = append(used, regionsOf(segs)...)
	}
	slices.Sort(used)
	used = slices.Compact(used)
	if p.live.Closed() {
		return nil, p.fail(rdma.ErrRefused, rdma.ErrClosed)
	}
	if err := p.check(used); err != nil {
		return nil, err
	}
	if err := p.open(used); err != nil {
		return nil, err
	}
	var todo []job
	counts := make([]int32, len(parts))
	for i, segs := range parts {
		for _, c := range chunks(segs) {
			todo = append(todo, job{c, i})
			counts[i]++
		}
	}
	t, err := pending.New(&p.live, Name, p.remote.Rank, dst, len(todo), nil)
	if err != nil {
		return nil, err
	}
	t.SetVerdict(func() error { return p.check(used) })
	t.SetParts(counts, landed)
	jobs := make([]func(), len(todo))
	for i, j := range todo {
		jobs[i] = func() { t.DoneOf(j.part, p.copyChunk(t, dst.Bytes(), j.Chunk)) }
	}
	p.t.pool.post(jobs)
	return t, nil
}

// partBytes: with its source, less than the second-level cache of any server's core, and less than what the C library and
// Go's runtime copy past the caches.
const partBytes = 128 << 10

// PartBytes implements rdma.PartReader.
func (p *peer) PartBytes() int64 { return partBytes }

// chunks cuts each region's segments, so that a chunk has one source.
func chunks(segs []rdma.Segment) []strided.Chunk {
	used := regionsOf(segs)
	if len(used) == 1 {
		return strided.Chunks(segs, chunkBytes, len(segs)+1)
	}
	var out []strided.Chunk
	for _, region := range used {
		var own []rdma.Segment
		for i := range segs {
			if segs[i].Region == region {
				own = append(own, segs[i])
			}
		}
		out = append(out, strided.Chunks(own, chunkBytes, len(own)+1)...)
	}
	return out
}

func (p *peer) copyChunk(t *pending.Transfer, dst []byte, c strided.Chunk) error {
	if err := t.Err(); err != nil {
		return err
	}
	if err := p.maps[c.Segs[0].Region].copy(dst, c.Segs); err != nil {
		return t.Fail(rdma.ErrReset, err)
	}
	return nil
}

func regionsOf(segs []rdma.Segment) []uint32 {
	var used []uint32
	for i := range segs {
		if r := segs[i].Region; len(used) == 0 || used[len(used)-1] != r {
			used = append(used, r)
		}
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// check is the bracket around a read: the process lives, the endpoint is open, the regions are served.
func (p *peer) check(used []uint32) error {
	if !p.alive() {
		return p.fail(rdma.ErrReset, fmt.Errorf("process %d has ended", p.access.PID))
	}
	if ok, err := p.view.open(); err != nil || !ok {
		return p.fail(rdma.ErrReset, errors.Join(errors.New("the endpoint was closed"), err))
	}
	for _, r := range used {
		if ok, err := p.view.served(r); err != nil || !ok {
			return p.fail(rdma.ErrRefused, errors.Join(fmt.Errorf("region %d was withdrawn", r), err))
		}
	}
	return nil
}

// open maps the regions that a read needs and earlier ones didn't.
func (p *peer) open(used []uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return p.fail(rdma.ErrRefused, rdma.ErrClosed)
	}
	for _, r := range used {
		if p.maps[r] != nil {
			continue
		}
		s, err := openSource(p.access.PID, &p.access.Regions[r])
		if err != nil {
			return p.fail(openError(err), fmt.Errorf("region %d: %w", r, err))
		}
		p.maps[r] = s
	}
	return nil
}

func (p *peer) fail(kind rdma.Kind, err error) error { return fail("read", p.remote.Rank, kind, err) }

// Close implements rdma.Peer.
func (p *peer) Close() error {
	for _, t := range p.live.CloseAll() {
		<-t.Finished()
	}
	p.unmap()
	p.t.peers.Forget(p)
	return nil
}

// unmap lets go of everything; errors of munmap and close of own descriptors can't be acted upon.
func (p *peer) unmap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return
	}
	p.gone = true
	for _, s := range p.maps {
		if s != nil {
			_ = s.close()
		}
	}
	for _, fd := range []int{p.pidfd, p.view.fd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
