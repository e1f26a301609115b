// Package landing reads batches in parts that fit a core's cache, and lets their owner look at bytes of the destination as
// soon as all parts that bring them have come: on the goroutine that brought the last, from that core's cache. Looking at
// bytes later costs a trip to memory for each; for checksums over what is copied on one host that is half of the copy's time.
//
// A Read is used once, by one goroutine: New, When for each interval that is waited for, Post, and then the transfer's Wait.
// Peers that don't tell of parts (rdma.PartReader) are read as ever, and looked at when all has come.
package landing

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/strided"
)

// DefaultPart is the size of a part in bytes: with its source, less than the second-level cache of any server's core, and
// less than what the C library and Go's runtime copy past the caches.
const DefaultPart = 256 << 10

// maxSegments bounds a part in segments: as many as one request of package tcp carries.
const maxSegments = 1024

// Read is one batch into one memory.
type Read struct {
	segs    []rdma.Segment
	parts   []part
	watched bool
	looks   []*look // those whose bytes no part brings
}

// part is what is read together.
type part struct {
	segs   []rdma.Segment
	lo, hi int64 // hull of its bytes in the destination
	looks  []*look
}

// look is what somebody does with an interval of the destination.
type look struct {
	missing atomic.Int32 // parts
	do      func() error
}

// New cuts a batch in parts of at most partBytes, DefaultPart where that is 0. Segments stay in order.
func New(segs []rdma.Segment, partBytes int64) *Read {
	if partBytes == 0 {
		partBytes = DefaultPart
	}
	r := &Read{segs: segs}
	for _, c := range strided.Chunks(segs, partBytes, maxSegments) {
		p := part{segs: c.Segs, lo: math.MaxInt64}
		for i := range c.Segs {
			p.lo, p.hi = min(p.lo, c.Segs[i].Dst), max(p.hi, c.Segs[i].DstEnd())
		}
		r.parts = append(r.parts, p)
	}
	return r
}

// When has do called once when all bytes of the batch in [lo, hi) of the destination have come. Calls may be at the same
// time, and before others are made; an error ends the transfer with it. It is called before Post.
func (r *Read) When(lo, hi int64, do func() error) {
	l := &look{do: do}
	r.watched = true
	for i := range r.parts {
		if p := &r.parts[i]; p.lo < hi && lo < p.hi {
			l.missing.Add(1)
			p.looks = append(p.looks, l)
		}
	}
	if l.missing.Load() == 0 {
		r.looks = append(r.looks, l)
	}
}

// landed notes that a part has come.
func (r *Read) landed(i int) error {
	for _, l := range r.parts[i].looks {
		if l.missing.Add(-1) > 0 {
			continue
		}
		if err := l.do(); err != nil {
			return err
		}
	}
	return nil
}

// Post posts the batch, as Peer.Read does.
func (r *Read) Post(p rdma.Peer, dst *rdma.Memory) (rdma.Transfer, error) {
	if !r.watched {
		return p.Read(dst, r.segs)
	}
	parts := make([][]rdma.Segment, len(r.parts))
	for i := range parts {
		parts[i] = r.parts[i].segs
	}
	reader, ok := p.(rdma.PartReader)
	if !ok {
		return r.postWhole(p, dst)
	}
	t, err := reader.ReadParts(dst, parts, r.landed)
	if err != nil || len(r.looks) == 0 {
		return t, err
	}
	return &late{Transfer: t, rest: r.rest}, nil
}

func (r *Read) postWhole(p rdma.Peer, dst *rdma.Memory) (rdma.Transfer, error) {
	t, err := p.Read(dst, r.segs)
	if err != nil {
		return nil, err
	}
	return &late{Transfer: t, rest: func() error {
		for i := range r.parts {
			if err := r.landed(i); err != nil {
				return err
			}
		}
		return r.rest()
	}}, nil
}

// rest looks at what no part brings.
func (r *Read) rest() error {
	for _, l := range r.looks {
		if err := l.do(); err != nil {
			return err
		}
	}
	return nil
}

// late is a transfer that is looked at by who waits for it.
type late struct {
	rdma.Transfer
	rest func() error
	once sync.Once
	err  error
}

// Wait implements rdma.Transfer.
func (l *late) Wait(ctx context.Context) error {
	if err := l.Transfer.Wait(ctx); err != nil {
		return err
	}
	l.once.Do(func() { l.err = l.rest() })
	return l.err
}
