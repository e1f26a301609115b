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
	secs, against, cpu, err := byTurns(b.o.Times, f, other)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.Seconds, r.CPU, r.Nbytes, r.Runs = secs, cpu, s.Nbytes(), s.Runs()
	if other != nil {
		r.Against, r.Share = base, against/secs
	}
	b.add(r)
	return nil
}

func (b *bench) add(r Row) {
	b.rep.Rows = append(b.rep.Rows, r)
	if b.o.Progress != nil {
		b.o.Progress(r)
	}
}

// byTurns runs f and other, which may be nil, once each to warm up and then n times by turns. It gives the fastest of
// each: on a shared machine that says most about the code. The processor time of f is the mean.
func byTurns(n int, f, other func() error) (secs, against, cpu float64, err error) {
	best, bestOther := time.Duration(1<<63-1), time.Duration(1<<63-1)
	var used time.Duration
	for i := range n + 1 {
		if other != nil {
			start := time.Now()
			if err := other(); err != nil {
				return 0, 0, 0, err
			}
			if i > 0 {
				bestOther = min(bestOther, time.Since(start))
			}
		}
		before, start := processorTime(), time.Now()
		if err := f(); err != nil {
			return 0, 0, 0, err
		}
		if i > 0 {
			best = min(best, time.Since(start))
			used += processorTime() - before
		}
	}
	return best.Seconds(), bestOther.Seconds(), used.Seconds() / float64(n), nil
}

// processorTime is what all threads of this process have used.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
