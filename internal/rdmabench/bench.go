package rdmabench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
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

// bench is the memory and what is measured with it.
type bench struct {
	o        *Options
	rep      *Report
	src, dst *rdma.Memory
	anon     *rdma.Memory // source for process_vm_readv
	nixl     *nixl.Library
}

func newBench(o *Options, rep *Report) (*bench, error) {
	b := &bench{o: o, rep: rep}
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
	for _, name := range []string{rdma.CopyCost, rawName} {
		for _, s := range shapes(b.o.Nbytes) {
			if err := b.row(Row{Transport: name, Shape: s.name, Sources: 1}, &s.seg, b.baseline(name, &s.seg)); err != nil {
				return err
			}
		}
	}
	for _, name := range b.o.Transports {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.transport(ctx, name); err != nil {
			if len(b.o.Transports) == 1 {
				return err
			}
			b.rep.Missing[name] = err.Error()
		}
	}
	return b.registration()
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
	if serve { // the library tells agents apart by their names, which are made of this
		cfg.Incarnation = ""
	}
	return b.nixl.New(cfg)
}

func (b *bench) incarnation(serve bool) string {
	if serve {
		return "bench-source"
	}
	return "bench-reader"
}

// transport measures one transport in all shapes and numbers of sources, with digests, and from served blocks.
func (b *bench) transport(ctx context.Context, name string) (err error) {
	r, err := b.openRig(name)
	if r != nil {
		defer func() { err = errors.Join(err, r.close()) }()
	}
	if err != nil {
		return err
	}
	for _, s := range shapes(b.o.Nbytes) {
		for _, n := range b.o.Sources {
			if err := ctx.Err(); err != nil {
				return err
			}
			row := Row{Transport: name, Shape: s.name, Sources: n}
			if err := b.row(row, &s.seg, func() error { return readAll(r.peers[:n], b.dst, &s.seg) }); err != nil {
				return err
			}
		}
		if err := b.verified(r, &s); err != nil {
			return err
		}
	}
	return b.servedLayout(r)
}

// rig is one reader and several sources of the same bytes, each an endpoint of its own.
type rig struct {
	name  string
	ts    []rdma.Transport // the reader first
	peers []rdma.Peer      // one for each source
}

func (b *bench) openRig(name string) (*rig, error) {
	r := &rig{name: name}
	reader, err := b.open(name, false)
	if err != nil {
		return nil, err
	}
	r.ts = append(r.ts, reader)
	if _, err := reader.Register(b.dst); err != nil {
		return r, err
	}
	mem := b.src
	if name == "vmread" {
		mem = b.anon
	}
	for range maxOf(b.o.Sources) {
		source, err := b.open(name, true)
		if err != nil {
			return r, err
		}
		r.ts = append(r.ts, source)
		remote, err := serve(source, mem)
		if err != nil {
			return r, err
		}
		p, err := connect(reader, remote)
		if err != nil {
			return r, err
		}
		r.peers = append(r.peers, p)
	}
	return r, nil
}

func (r *rig) close() error {
	var errs []error
	for _, t := range r.ts {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

func maxOf(ns []int) int {
	out := 1
	for _, n := range ns {
		out = max(out, n)
	}
	return out
}

// lives tells a transport's incarnation.
type lives interface{ Incarnation() string }

func serve(t rdma.Transport, m *rdma.Memory) (rdma.Remote, error) {
	reg, err := t.Register(m)
	if err != nil {
		return rdma.Remote{}, err
	}
	a, err := t.Access()
	if err != nil {
		return rdma.Remote{}, err
	}
	life, ok := t.(lives)
	if !ok {
		return rdma.Remote{}, fmt.Errorf("transport %s has no incarnation", t.Name())
	}
	host, err := rdma.HostID()
	return rdma.Remote{Host: host, Incarnation: life.Incarnation(), Regions: []rdma.RemoteRegion{reg.Describe()}, Access: a}, err
}

// connectTime bounds each connect, readTime each read.
const (
	connectTime = 30 * time.Second
	readTime    = 2 * time.Minute
)

func connect(t rdma.Transport, r rdma.Remote) (rdma.Peer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	return t.Connect(ctx, r)
}

// share is the part of a read that source i of n brings: bytes of a run, or some of the runs.
func share(s *rdma.Segment, i, n int64) rdma.Segment {
	out := *s
	if s.Runs() == 1 {
		lo, hi := s.Run*i/n, s.Run*(i+1)/n
		out.Src, out.Dst, out.Run = s.Src+lo, s.Dst+lo, hi-lo
		return out
	}
	lo, hi := s.N[2]*i/n, s.N[2]*(i+1)/n
	out.Src, out.Dst, out.N[2] = s.Src+lo*s.SrcStride[2], s.Dst+lo*s.DstStride[2], hi-lo
	return out
}

// readAll splits a read between peers; all are posted before any is awaited.
func readAll(peers []rdma.Peer, dst *rdma.Memory, s *rdma.Segment) error {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	live := make([]rdma.Transfer, 0, len(peers))
	for i, p := range peers {
		t, err := p.Read(dst, []rdma.Segment{share(s, int64(i), int64(len(peers)))})
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
