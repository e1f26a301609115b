package rdmabench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// baseline is the plainest way to move the bytes of a segment that a transport is compared with.
func (b *bench) baseline(name string, s *rdma.Segment) func() error {
	if name == rawName {
		return newLoopback(b.dst.Bytes(), b.src.Bytes(), s).run
	}
	return func() error { copyAll(b.dst.Bytes(), b.src.Bytes(), s); return nil }
}

// comparedWith is the baseline of a transport: sockets with raw sockets, everything else with a copy.
func comparedWith(transport string) string {
	if transport == "tcp" || transport == "tls" {
		return rawName
	}
	return rdma.CopyCost
}

// row measures f, by turns with what it is compared with, so that both meet the same neighbours.
func (b *bench) row(r Row, s *rdma.Segment, f func() error) error {
	what := fmt.Sprintf("%s, %s, %d sources", r.Transport, r.Shape, r.Sources)
	base := comparedWith(r.Transport)
	var other func() error
	if r.Transport != rdma.CopyCost && r.Transport != rawName {
		other = b.baseline(base, s)
	}
	own, others, err := byTurns(b.o.Times, f, other)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.Nbytes, r.Runs = s.Nbytes(), s.Runs()
	r.fill(own, others)
	if other != nil {
		r.Against = base
	}
	b.add(r)
	return nil
}

// fill takes over what was measured.
func (r *Row) fill(own, others cost) {
	r.Seconds, r.CPU = own.secs, own.cpu
	if others.secs > 0 {
		r.Share, r.ShareCPU = others.secs/own.secs, others.cpu/own.cpu
	}
}

func (b *bench) add(r Row) {
	b.rep.Rows = append(b.rep.Rows, r)
	if b.o.Progress != nil {
		b.o.Progress(r)
	}
}

// cost is the least that any of several runs took: on a shared machine the least says most about the code.
type cost struct {
	secs float64
	cpu  float64 // seconds of processor time, of all threads
}

// measured runs f once.
func (c *cost) measured(f func() error, warm bool) error {
	if f == nil {
		return nil
	}
	used, start := processorTime(), time.Now()
	if err := f(); err != nil || warm {
		return err
	}
	secs, cpu := time.Since(start).Seconds(), (processorTime() - used).Seconds()
	if c.secs == 0 {
		*c = cost{secs, cpu}
	}
	c.secs, c.cpu = min(c.secs, secs), min(c.cpu, cpu)
	return nil
}

// byTurns runs f and other, which may be nil, once each to warm up and then n times by turns.
func byTurns(n int, f, other func() error) (own, others cost, err error) {
	for i := range n + 1 {
		if err := others.measured(other, i == 0); err != nil {
			return own, others, err
		}
		if err := own.measured(f, i == 0); err != nil {
			return own, others, err
		}
	}
	return own, others, nil
}

// processorTime is what all threads of this process have used.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
