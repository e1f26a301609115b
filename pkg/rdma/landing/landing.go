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

// maxSegments bounds a part in segments: as many as one request of package tcp carries.
const maxSegments = 1024

// Read is one batch into one memory.
type Read struct {
	segs  []rdma.Segment
	parts []part
	looks []*look
	rest  []*look // those whose bytes no part brings
}

// part is what is read together.
type part struct {
	segs   []rdma.Segment
	lo, hi int64 // hull of its bytes in the destination
	looks  []*look
}

// look is what somebody does with an interval of the destination.
type look struct {
	lo, hi  int64
	missing atomic.Int32 // parts
	do      func() error
}

// New makes a batch ready to be read.
func New(segs []rdma.Segment) *Read { return &Read{segs: segs} }

// When has do called once when all bytes of the batch in [lo, hi) of the destination have come. Calls may be at the same
// time, and before others are made; an error ends the transfer with it. It is called before Post.
func (r *Read) When(lo, hi int64, do func() error) {
	r.looks = append(r.looks, &look{lo: lo, hi: hi, do: do})
}

// cut makes parts of at most nbytes, in the order of the segments, and finds out which of them each look waits for.
func (r *Read) cut(nbytes int64) {
	for _, c := range strided.Chunks(r.segs, nbytes, maxSegments) {
		p := part{segs: c.Segs, lo: math.MaxInt64}
		for i := range c.Segs {
			p.lo, p.hi = min(p.lo, c.Segs[i].Dst), max(p.hi, c.Segs[i].DstEnd())
		}
		r.parts = append(r.parts, p)
	}
	for _, l := range r.looks {
		for i := range r.parts {
			if p := &r.parts[i]; p.lo < l.hi && l.lo < p.hi {
				l.missing.Add(1)
				p.looks = append(p.looks, l)
			}
		}
		if l.missing.Load() == 0 {
			r.rest = append(r.rest, l)
		}
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
	reader, ok := p.(rdma.PartReader)
	switch {
	case len(r.looks) == 0:
		return p.Read(dst, r.segs)
	case !ok:
		t, err := p.Read(dst, r.segs)
		if err != nil {
			return nil, err
		}
		return &late{Transfer: t, looks: r.looks}, nil
	}
	r.cut(reader.PartBytes())
	parts := make([][]rdma.Segment, len(r.parts))
	for i := range parts {
		parts[i] = r.parts[i].segs
	}
	t, err := reader.ReadParts(dst, parts, r.landed)
	if err != nil || len(r.rest) == 0 {
		return t, err
	}
	return &late{Transfer: t, looks: r.rest}, nil
}

// late is a transfer of which who waits for it looks at bytes.
type late struct {
	rdma.Transfer
	looks []*look
	once  sync.Once
	err   error
}

// Wait implements rdma.Transfer.
func (l *late) Wait(ctx context.Context) error {
	if err := l.Transfer.Wait(ctx); err != nil {
		return err
	}
	l.once.Do(func() {
		for i := 0; i < len(l.looks) && l.err == nil; i++ {
			l.err = l.looks[i].do()
		}
	})
	return l.err
}
