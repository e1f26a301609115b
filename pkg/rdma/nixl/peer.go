package nixl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/nixlsys"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/pending"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/strided"
)

// Limits of one request: descriptors cost a call each, and over shared memory the post blocks while it copies.
const (
	chunkBytes = 32 << 20
	chunkDescs = 8192
	inFlight   = 4 // requests of one peer
)

// peer reads from one remote agent.
type peer struct {
	t       *Transport
	rd      *reader
	remote  rdma.Remote
	agent   string // the remote's name
	control rdma.Peer
	probe   *rdma.Memory // where bytes of the control channel go
	live    pending.Set
	slots   chan struct{}
	closing sync.Once

	breaks sync.Once       // at the first failure that only a new connect can mend
	broken context.Context // ends then
	snap   context.CancelFunc
	why    rdma.Kind // set before that

	mu     sync.Mutex
	wake   *sync.Cond
	queue  []job
	closed bool
	done   chan struct{}
}

// job is one part of a transfer to be posted.
type job struct {
	t     *pending.Transfer
	dst   *rdma.Memory
	chunk chunk
	part  int // of the batch
}

// chunk is pairs of runs, flat.
type chunk struct {
	local, remote []nixlsys.Desc
	nbytes        int64
	memType       nixlsys.MemType // of the remote runs
}

func newPeer(t *Transport, rd *reader, r rdma.Remote, agent string, control rdma.Peer) (*peer, error) {
	probe, err := rdma.Alloc(max(1, int64(len(r.Regions))), rdma.AllocOptions{Backing: rdma.Anonymous})
	if err != nil {
		return nil, fail("connect", r.Rank, rdma.ErrUnavailable, err)
	}
	p := &peer{
		t: t, rd: rd, remote: r, agent: agent, control: control, probe: probe,
		slots: make(chan struct{}, inFlight), done: make(chan struct{}),
	}
	p.wake = sync.NewCond(&p.mu)
	p.broken, p.snap = context.WithCancel(context.Background())
	go p.run()
	return p, nil
}

// Read implements rdma.Peer.
func (p *peer) Read(dst *rdma.Memory, segs []rdma.Segment) (rdma.Transfer, error) {
	return p.ReadParts(dst, [][]rdma.Segment{segs}, nil)
}

// ReadParts implements rdma.PartReader: each part is a request of its own or several, the control channel is asked once.
func (p *peer) ReadParts(dst *rdma.Memory, parts [][]rdma.Segment, landed func(int) error) (rdma.Transfer, error) {
	var total int64
	var jobs []job
	counts := make([]int32, len(parts))
	for i, segs := range parts {
		nbytes, err := rdma.CheckAll(segs, p.remote.Regions, dst.Len())
		if err != nil {
			return nil, p.fail(rdma.ErrRefused, err)
		}
		total += nbytes
		chunks, err := p.chunks(dst, segs)
		if err != nil {
			return nil, p.fail(rdma.ErrRefused, err)
		}
		for _, c := range chunks {
			jobs = append(jobs, job{dst: dst, chunk: c, part: i})
		}
		counts[i] = int32(len(chunks))
	}
	t, err := pending.New(&p.live, Name, p.remote.Rank, dst, len(jobs), nil)
	if err != nil {
		return nil, err
	}
	used := regionsOf(parts)
	t.SetCeiling(total, p.t.cfg.Ceiling)
	t.SetVerdict(func() error { return p.ask(used) })
	t.SetParts(counts, landed)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range jobs {
		jobs[i].t = t
	}
	p.queue = append(p.queue, jobs...)
	p.wake.Signal()
	return t, nil
}

// partBytes: each part is a request. They are not made to fit a cache, but so that some are looked at while others come.
const partBytes = 4 << 20

// PartBytes implements rdma.PartReader.
func (p *peer) PartBytes() int64 { return partBytes }

// chunks flattens segments to pairs of runs. A batch has runs of several kinds of memory only one at a time.
func (p *peer) chunks(dst *rdma.Memory, segs []rdma.Segment) ([]chunk, error) {
	_, local, err := descOf(dst)
	if err != nil {
		return nil, err
	}
	b := flattener{base: local.Addr, device: local.Device}
	for i := range segs {
		s := strided.Compact(segs[i])
		g := p.remote.Regions[s.Region]
		t, dev, err := device(g.Device)
		if err != nil {
			return nil, err
		}
		b.region(g.Base, t, dev)
		for piece := range strided.Pieces(s, chunkBytes) {
			b.segment(&piece)
		}
	}
	b.flush()
	return b.out, nil
}

// regionsOf names a byte of the shadow of each region that is read.
func regionsOf(parts [][]rdma.Segment) []rdma.Segment {
	var out []rdma.Segment
	seen := map[uint32]bool{}
	for _, segs := range parts {
		for i := range segs {
			if r := segs[i].Region; !seen[r] {
				seen[r] = true
				out = append(out, rdma.Contiguous(r, 0, int64(r), 1))
			}
		}
	}
	return slices.Clip(out)
}

// ask reads a byte of each region's shadow: the endpoint lives, is the same, and still serves what was read.
func (p *peer) ask(used []rdma.Segment) error {
	t, err := p.control.Read(p.probe, used)
	if err == nil {
		err = t.Wait(p.broken) // and bounded by the control channel's own deadlines
	}
	if err == nil {
		return nil
	}
	kind := rdma.KindOf(err)
	if kind == 0 {
		return p.fail(p.why, errBroken)
	}
	if kind != rdma.ErrRefused {
		p.giveUp(kind)
	}
	return p.fail(kind, fmt.Errorf("control channel: %w", err))
}

// giveUp makes all later reads fail at once: the remote agent has to be introduced anew.
func (p *peer) giveUp(why rdma.Kind) {
	p.breaks.Do(func() {
		p.why = why
		p.snap()
	})
}

func (p *peer) fail(kind rdma.Kind, err error) error { return fail("read", p.remote.Rank, kind, err) }

// run posts the peer's jobs one after another.
func (p *peer) run() {
	defer close(p.done)
	for {
		j, ok := p.next()
		if !ok {
			return
		}
		select {
		case <-p.broken.Done():
		case p.slots <- struct{}{}:
			if err := p.start(j); err != nil {
				<-p.slots
				j.t.Done(err)
			}
			continue
		}
		j.t.Done(j.t.Fail(p.why, errBroken))
	}
}

func (p *peer) next() (job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 && !p.closed {
		p.wake.Wait()
	}
	if len(p.queue) == 0 {
		return job{}, false
	}
	j := p.queue[0]
	p.queue = p.queue[1:]
	return j, true
}

var errBroken = errors.New("an earlier read failed: connect anew")

// start makes and posts one request. With nil the job's end is reported by the request.
func (p *peer) start(j job) error {
	if err := j.t.Err(); err != nil {
		return err
	}
	if p.broken.Err() != nil { // with a free slot besides, either may have been seen first
		return j.t.Fail(p.why, errBroken)
	}
	if err := p.rd.use(j.dst, false); err != nil {
		return j.t.Fail(rdma.ErrRefused, err)
	}
	local, _, err := descOf(j.dst)
	if err != nil {
		return errors.Join(j.t.Fail(rdma.ErrRefused, err), p.rd.unuse(j.dst))
	}
	h, err := p.rd.newRead(local, &j.chunk, p.agent)
	if err != nil {
		return errors.Join(j.t.Fail(rdma.ErrRefused, err), p.rd.unuse(j.dst))
	}
	q := &request{handle: h, t: j.t, posted: time.Now(), nbytes: j.chunk.nbytes}
	q.ended = func(st nixlsys.Status) { p.end(q, j, st) }
	q.frozen = func() { p.giveUp(rdma.ErrTimeout) }
	if st := p.rd.sys.Post(p.rd.handle, h); st != nixlsys.InProgress {
		// Freed before the next is posted: whoever frees it later spins for the library's lock as long as that one copies.
		// Bytes are looked at while the next come: the kernel's long copies leave nothing in this core's cache.
		err := p.settle(q, j, st)
		p.rd.later(func() { p.tell(j, err) })
		return nil
	}
	p.rd.follow(q)
	return nil
}

// end is settle and tell, for a request that the poller has found to have ended.
func (p *peer) end(q *request, j job, st nixlsys.Status) { p.tell(j, p.settle(q, j, st)) }

// settle frees a request that has ended, and says how.
func (p *peer) settle(q *request, j job, st nixlsys.Status) (err error) {
	if st != nixlsys.Success {
		p.giveUp(rdma.ErrReset)
		err = j.t.Fail(rdma.ErrReset, st)
	}
	if e := errors.Join(p.rd.sys.Free(p.rd.handle, q.handle), p.rd.unuse(j.dst)); e != nil {
		p.t.cfg.Logger.Warn("free request", "transport", Name, "error", e)
	}
	return err
}

// tell ends a job. The last of a transfer waits for the control channel's word.
func (p *peer) tell(j job, err error) {
	<-p.slots
	j.t.DoneOf(j.part, err)
}

// Close implements rdma.Peer. What doesn't end in time is quarantined, and the remote agent then isn't forgotten.
func (p *peer) Close() error {
	var err error
	p.closing.Do(func() { err = p.close() })
	return err
}

func (p *peer) close() error {
	defer p.snap()
	for _, t := range p.live.CloseAll() {
		<-t.Finished()
	}
	p.mu.Lock()
	p.closed = true
	p.wake.Broadcast()
	p.mu.Unlock()
	defer p.t.peers.Forget(p)
	defer p.rd.leave()
	if len(p.slots) > 0 {
		return p.control.Close() // requests are in quarantine: their agent must stay
	}
	<-p.done
	var err error
	if p.rd.load() >= 0 { // else another call is stuck, and this one would wait for it
		err = p.rd.unload(p.agent)
	}
	return errors.Join(err, p.control.Close(), p.probe.Close())
}
