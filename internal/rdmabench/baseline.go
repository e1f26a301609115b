package rdmabench

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// copyAll is the plainest copy of a shape: a loop over runs, one part for each core.
func copyAll(dst, src []byte, s *rdma.Segment) {
	cores := int64(runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for c := range cores {
		wg.Go(func() {
			if s.Runs() == 1 {
				lo, hi := s.Run*c/cores, s.Run*(c+1)/cores
				copy(dst[lo:hi], src[lo:hi])
				return
			}
			for k := s.N[2] * c / cores; k < s.N[2]*(c+1)/cores; k++ {
				copy(dst[k*s.DstStride[2]:][:s.Run], src[k*s.SrcStride[2]:][:s.Run])
			}
		})
	}
	wg.Wait()
}

// inParallel runs n jobs on all cores and gives the first error.
func inParallel(n int64, job func(int64) error) error {
	var next atomic.Int64
	var once sync.Once
	var first error
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
				if err := job(i); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	wg.Wait()
	return first
}

// rawName is the baseline of transports over sockets.
const rawName = "loopback"

// loopback copies a shape's bytes over raw TCP connections of this process, as many as a tcp peer has by default:
// the sender packs short runs to a buffer, the receiver reads straight into place. No protocol, no checks.
type loopback struct {
	dst, src []byte
	seg      *rdma.Segment
}

const (
	loopbackConns  = 4
	loopbackBuffer = 256 << 10
)

func newLoopback(dst, src []byte, s *rdma.Segment) *loopback { return &loopback{dst, src, s} }

func (l *loopback) run() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	var wg sync.WaitGroup
	errs := make([]error, 2*loopbackConns)
	for i := range int64(loopbackConns) {
		out, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return err
		}
		in, err := ln.Accept()
		if err != nil {
			return errors.Join(err, out.Close())
		}
		wg.Go(func() { errs[2*i] = errors.Join(l.send(out, i), out.Close()) })
		wg.Go(func() { errs[2*i+1] = errors.Join(l.receive(in, i), in.Close()) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// part is the share of a connection: a piece of the run, or some of the runs.
func (l *loopback) part(i int64) (lo, hi int64) {
	n := l.seg.N[2]
	if n == 1 {
		n = l.seg.Run
	}
	return n * i / loopbackConns, n * (i + 1) / loopbackConns
}

func (l *loopback) send(w io.Writer, i int64) error {
	lo, hi := l.part(i)
	if l.seg.Runs() == 1 {
		_, err := w.Write(l.src[lo:hi])
		return err
	}
	buf := make([]byte, 0, max(loopbackBuffer, l.seg.Run))
	for k := lo; k < hi; k++ {
		if len(buf)+int(l.seg.Run) > cap(buf) {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
		buf = append(buf, l.src[k*l.seg.SrcStride[2]:][:l.seg.Run]...)
	}
	_, err := w.Write(buf)
	return err
}

// receive takes packed bytes: every shape of this benchmark has a dense destination.
func (l *loopback) receive(r io.Reader, i int64) error {
	lo, hi := l.part(i)
	if l.seg.Runs() > 1 {
		lo, hi = lo*l.seg.Run, hi*l.seg.Run
	}
	_, err := io.ReadFull(r, l.dst[lo:hi])
	return err
}
