package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

// benchMoves compares the transports with a plain copy and with a raw loopback connection, for one large read and for
// short runs as column slices have them.
func benchMoves(ctx context.Context, out io.Writer, o Options) (err error) {
	m, err := newMover(ctx, o.Nbytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	whole := []rdma.Segment{rdma.Contiguous(0, 0, 0, o.Nbytes)}
	amount := float64(o.Nbytes)
	s := section{title: fmt.Sprintf("%d MiB in one read", o.Nbytes>>20), compare: true, rows: []*row{
		{name: "memcpy", amount: amount, unit: "B", run: func() error { copy(m.dst.Bytes(), m.src.Bytes()); return nil }},
		{name: "raw loopback", amount: amount, unit: "B", run: func() error { return rawLoopback(m.src.Bytes(), m.dst.Bytes()) }},
		{name: "local", amount: amount, unit: "B", run: func() error { return m.read(ctx, m.local, whole) }},
		{name: "tcp", amount: amount, unit: "B", run: func() error { return m.read(ctx, m.tcp, whole) }},
	}}
	if err := s.measure(ctx, out, o.Rounds); err != nil {
		return err
	}
	for _, run := range []int64{4096, 384} {
		s := m.strided(ctx, run)
		if err := s.measure(ctx, out, o.Rounds); err != nil {
			return err
		}
	}
	return nil
}

// mover is a source and a destination with a connection by each transport.
type mover struct {
	src, dst   *rdma.Memory
	local, tcp rdma.Peer
	closers    []func() error
}

// strided reads every fourth run of the source, packed.
func (m *mover) strided(ctx context.Context, run int64) section {
	n := m.src.Len() / (4 * run)
	seg := rdma.Segment{Run: run, N: [3]int64{1, 1, n}, SrcStride: [3]int64{0, 0, 4 * run}, DstStride: [3]int64{0, 0, run}}
	amount := float64(seg.Nbytes())
	gather := func() error {
		src, dst := m.src.Bytes(), m.dst.Bytes()
		for i := range n {
			copy(dst[i*run:(i+1)*run], src[4*i*run:])
		}
		return nil
	}
	return section{title: fmt.Sprintf("%d runs of %d bytes, one strided segment", n, run), compare: true, rows: []*row{
		{name: "copy loop", amount: amount, unit: "B", run: gather},
		{name: "local", amount: amount, unit: "B", run: func() error { return m.read(ctx, m.local, []rdma.Segment{seg}) }},
		{name: "tcp", amount: amount, unit: "B", run: func() error { return m.read(ctx, m.tcp, []rdma.Segment{seg}) }},
	}}
}

func newMover(ctx context.Context, nbytes int64) (*mover, error) {
	m := &mover{}
	if err := m.open(ctx, nbytes); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *mover) open(ctx context.Context, nbytes int64) (err error) {
	for _, mem := range []**rdma.Memory{&m.src, &m.dst} {
		if *mem, err = rdma.Alloc(nbytes, rdma.AllocOptions{}); err != nil {
			return err
		}
		m.closers = append(m.closers, (*mem).Close)
	}
	for i, b := 0, m.src.Bytes(); i < len(b); i += 64 {
		b[i] = byte(i >> 6)
	}
	incarnation := rdma.NewIncarnation()
	host, err := rdma.HostID()
	if err != nil {
		return err
	}
	l, err := local.New(local.Config{Incarnation: incarnation})
	if err != nil {
		return err
	}
	if m.local, err = m.connect(ctx, l, host, incarnation); err != nil {
		return err
	}
	t, err := tcp.New(tcp.Config{Listen: "127.0.0.1:0", Incarnation: incarnation})
	if err != nil {
		return err
	}
	m.tcp, err = m.connect(ctx, t, host, incarnation)
	return err
}

// connect serves the source by a transport and reaches it through itself.
func (m *mover) connect(ctx context.Context, t rdma.Transport, host, incarnation string) (rdma.Peer, error) {
	m.closers = append(m.closers, t.Close)
	region, err := t.Register(m.src)
	if err != nil {
		return nil, err
	}
	access, err := t.Access()
	if err != nil {
		return nil, err
	}
	peer, err := t.Connect(ctx, rdma.Remote{Host: host, Incarnation: incarnation, Regions: []rdma.RemoteRegion{region.Describe()}, Access: access})
	if err == nil {
		m.closers = append(m.closers, peer.Close)
	}
	return peer, err
}

func (m *mover) read(ctx context.Context, p rdma.Peer, segs []rdma.Segment) error {
	t, err := p.Read(m.dst, segs)
	if err != nil {
		return err
	}
	return t.Wait(ctx)
}

func (m *mover) close() error {
	var errs []error
	for i := len(m.closers) - 1; i >= 0; i-- {
		errs = append(errs, m.closers[i]())
	}
	m.closers = nil
	return errors.Join(errs...)
}

// rawLoopback sends src to dst over one loopback connection, with nothing but the kernel in between.
func rawLoopback(src, dst []byte) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	sent := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = c.Write(src)
			err = errors.Join(err, c.Close())
		}
		sent <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	_, err = io.ReadFull(c, dst)
	return errors.Join(err, c.Close(), <-sent)
}
