package rdmabench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

// Names of what transports are compared with.
const (
	copyName = "copy"
	rawName  = "loopback"
)

// shape is a read of about nbytes.
type shape struct {
	name string
	seg  rdma.Segment
}

// shapes: one run; and one run of four, as a column slice at tensor-parallel size 4 has them, of the sizes that matter:
// rows of a served block, of a wide matrix, and of the down projections of a small expert.
func shapes(nbytes int64) []shape {
	out := []shape{{"whole", rdma.Contiguous(0, 0, 0, nbytes)}}
	for _, run := range []int64{64 << 10, 4 << 10, 384} {
		n := nbytes / (4 * run)
		out = append(out, shape{fmt.Sprintf("%d B of 4", run), rdma.Segment{
			Run: run, N: [3]int64{1, 1, n},
			SrcStride: [3]int64{0, 0, 4 * run}, DstStride: [3]int64{0, 0, run},
		}})
	}
	return out
}

type bench struct {
	o        *Options
	rep      *Report
	src, dst *rdma.Memory
	anon     *rdma.Memory // source for process_vm_readv
	base     map[string]Row
	nixl     *nixl.Library
}

func newBench(o *Options, rep *Report) (*bench, error) {
	b := &bench{o: o, rep: rep, base: map[string]Row{}}
	var err error
	for _, m := range []struct {
		to   **rdma.Memory
		kind rdma.Backing
	}{{&b.src, rdma.Memfd}, {&b.dst, rdma.Memfd}, {&b.anon, rdma.Anonymous}} {
		if *m.to, err = rdma.Alloc(o.Nbytes, rdma.AllocOptions{Backing: m.kind}); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	for i := range b.src.Bytes() {
		b.src.Bytes()[i] = byte(i * 2654435761 >> 13)
	}
	copy(b.anon.Bytes(), b.src.Bytes())
	return b, nil
}

func (b *bench) close() error {
	var errs []error
	for _, m := range []*rdma.Memory{b.src, b.dst, b.anon} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

func (b *bench) run(ctx context.Context) error {
	for _, s := range shapes(b.o.Nbytes) {
		plain := func() error { copyAll(b.dst.Bytes(), b.src.Bytes(), &s.seg); return nil }
		if err := b.row(Row{Transport: copyName, Shape: s.name, Sources: 1}, &s.seg, plain); err != nil {
			return err
		}
		raw := newLoopback(b.dst.Bytes(), b.src.Bytes(), &s.seg)
		if err := b.row(Row{Transport: rawName, Shape: s.name, Sources: 1}, &s.seg, raw.run); err != nil {
			return err
		}
	}
	for _, name := range b.o.Transports {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.transport(name); err != nil {
			if len(b.o.Transports) == 1 {
				return err
			}
			b.rep.Missing[name] = err.Error()
		}
	}
	return b.extras(ctx)
}

// open makes one transport; serving ones listen on loopback.
func (b *bench) open(name string, serve bool) (rdma.Transport, error) {
	listen := ""
	if serve {
		listen = "127.0.0.1:0"
	}
	switch name {
	case "local", "vmread":
		return local.New(local.Config{Incarnation: b.incarnation(serve)})
	case "tcp", "tls":
		return tcp.New(tcp.Config{Listen: listen, Secure: name == "tls" && serve, Incarnation: b.incarnation(serve)})
	case "nixl":
		return b.openNixl(listen, serve)
	}
	return nil, fmt.Errorf("transport %q: local, vmread, tcp, tls or nixl", name)
}

func (b *bench) openNixl(listen string, serve bool) (rdma.Transport, error) {
	if b.nixl == nil {
		l, err := nixl.Open(b.o.Nixl, b.o.NixlRoots...)
		if err != nil {
			return nil, err
		}
		b.nixl = l
	}
	cfg := b.o.Nixl
	cfg.Listen, cfg.Incarnation, cfg.Logger = listen, b.incarnation(serve), b.o.Logger
	return b.nixl.New(cfg)
}

func (b *bench) incarnation(serve bool) string {
	if serve {
		return "bench-source"
	}
	return "bench-reader"
}

// transport measures one transport in all shapes and numbers of sources.
func (b *bench) transport(name string) (err error) {
	var ts [2]rdma.Transport
	for i := range ts {
		if ts[i], err = b.open(name, i == 0); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, ts[i].Close()) }()
	}
	mem := b.src
	if name == "vmread" {
		mem = b.anon
	}
	remote, err := serve(ts[0], mem)
	if err != nil {
		return err
	}
	if _, err := ts[1].Register(b.dst); err != nil {
		return err
	}
	peers, err := connect(ts[1], remote, maxOf(b.o.Sources))
	if err != nil {
		return err
	}
	for _, s := range shapes(b.o.Nbytes) {
		for _, n := range b.o.Sources {
			if n > 1 && s.seg.Run < b.o.Nbytes {
				continue
			}
			row := Row{Transport: name, Shape: s.name, Sources: n}
			if err := b.row(row, &s.seg, func() error { return readAll(peers[:n], b.dst, &s.seg) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func maxOf(ns []int) int {
	out := 1
	for _, n := range ns {
		out = max(out, n)
	}
	return out
}

func serve(t rdma.Transport, m *rdma.Memory) (rdma.Remote, error) {
	reg, err := t.Register(m)
	if err != nil {
		return rdma.Remote{}, err
	}
	a, err := t.Access()
	if err != nil {
		return rdma.Remote{}, err
	}
	host, err := rdma.HostID()
	return rdma.Remote{Host: host, Incarnation: "bench-source", Regions: []rdma.RemoteRegion{reg.Describe()}, Access: a}, err
}

// connectTime bounds each connect, readTime each read.
const (
	connectTime = 30 * time.Second
	readTime    = 2 * time.Minute
)

func connect(t rdma.Transport, r rdma.Remote, n int) ([]rdma.Peer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	var out []rdma.Peer
	for range n {
		p, err := t.Connect(ctx, r)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// readAll splits a contiguous read between peers; all are posted before any is awaited.
func readAll(peers []rdma.Peer, dst *rdma.Memory, s *rdma.Segment) error {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	live := make([]rdma.Transfer, 0, len(peers))
	part := s.Run / int64(len(peers))
	for i, p := range peers {
		seg := *s
		if len(peers) > 1 {
			seg = rdma.Contiguous(0, int64(i)*part, int64(i)*part, part)
		}
		t, err := p.Read(dst, []rdma.Segment{seg})
		if err != nil {
			return err
		}
		live = append(live, t)
	}
	var errs []error
	for _, t := range live {
		errs = append(errs, t.Wait(ctx))
	}
	return errors.Join(errs...)
}

// row measures f, and compares it with the copies of the same shape.
func (b *bench) row(r Row, s *rdma.Segment, f func() error) error {
	cpu := processorTime()
	secs, err := fastest(b.o.Times, f)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", r.Transport, r.Shape, err)
	}
	r.CPU = (processorTime() - cpu).Seconds() / float64(b.o.Times+1)
	r.Seconds, r.Nbytes, r.Runs = secs, s.Nbytes(), s.Runs()
	switch r.Transport {
	case copyName, rawName:
		b.base[r.Transport+r.Shape] = r
	default:
		r.OfCopy = b.base[copyName+r.Shape].Seconds / secs
		r.OfRaw = b.base[rawName+r.Shape].Seconds / secs
	}
	b.rep.Rows = append(b.rep.Rows, r)
	if b.o.Progress != nil {
		b.o.Progress(r)
	}
	return nil
}

// processorTime is what all threads of this process have used.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fastest runs f once to warm up, then n times: on a shared machine the fastest says most about the code.
func fastest(n int, f func() error) (float64, error) {
	if err := f(); err != nil {
		return 0, err
	}
	best := time.Duration(1<<63 - 1)
	for range n {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		best = min(best, time.Since(start))
	}
	return best.Seconds(), nil
}
