package nixl

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/internal/registry"
	"github.com/drydock-rl/drydock/pkg/rdma/tcp"
)

// Transport is one process's end.
type Transport struct {
	cfg     Config
	lib     *Library
	control *tcp.Transport
	shadow  *rdma.Memory // what the control channel serves: a page that stands for every region
	regions registry.Registry
	serving *agent // nil: reads only
	readers []*reader

	peers   registry.Peers
	picking sync.Mutex // held while a reading agent is chosen for a peer
	quarry  quarantine
	probes  probes
}

// New opens the library and makes a transport of it.
func New(cfg Config, roots ...string) (*Transport, error) {
	lib, err := Open(cfg, roots...)
	if err != nil {
		return nil, err
	}
	return lib.New(cfg)
}

// New tests the library, once, and makes the agents. A library that doesn't work is ErrUnavailable.
func (l *Library) New(cfg Config) (*Transport, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configure nixl transport: %w", err)
	}
	l.once.Do(func() { l.tested = l.SelfTest(cfg) })
	if l.tested != nil {
		return nil, fail("self-test", -1, rdma.ErrUnavailable, l.tested)
	}
	t := &Transport{cfg: cfg, lib: l}
	t.quarry.log = cfg.Logger
	if err := t.start(); err != nil {
		return nil, errors.Join(fail("start", -1, rdma.ErrUnavailable, err), t.Close())
	}
	return t, nil
}

func (t *Transport) start() (err error) {
	t.control, err = tcp.New(tcp.Config{
		Listen: t.cfg.Listen, Advertise: t.cfg.Advertise, Secure: t.cfg.Secure,
		Incarnation: t.cfg.Incarnation, Conns: 1, Stall: t.cfg.Stall, Handshake: min(t.cfg.Stall, 5*time.Second), Logger: t.cfg.Logger,
	})
	if err != nil {
		return err
	}
	if t.shadow, err = rdma.Alloc(1, rdma.AllocOptions{Backing: rdma.Anonymous}); err != nil {
		return err
	}
	if t.cfg.Listen != "" {
		if t.serving, err = newAgent(t.lib, &t.cfg, servingAgent, "drydock-"+t.cfg.Incarnation); err != nil {
			return err
		}
	}
	for i := range t.cfg.Agents {
		a, err := newAgent(t.lib, &t.cfg, readingAgent, fmt.Sprintf("drydock-%s-r%d", t.cfg.Incarnation, i))
		if err != nil {
			return err
		}
		t.readers = append(t.readers, newReader(a, &t.quarry, t.cfg.Stall))
	}
	return nil
}

// Name implements rdma.Transport.
func (t *Transport) Name() string { return Name }

// Incarnation is this life of the endpoint.
func (t *Transport) Incarnation() string { return t.cfg.Incarnation }

// Library tells which library is in use.
func (t *Transport) Library() string { return t.lib.Path }

// Quarantined counts transfers that never ended, and the bytes of their destinations that must not be reused.
func (t *Transport) Quarantined() (transfers int, nbytes int64) { return t.quarry.count() }

// Register implements rdma.Transport. A serving transport serves the memory; a reading one keeps it registered as a
// destination. Memory that is read into without being registered is registered for the time of each read.
func (t *Transport) Register(m *rdma.Memory) (rdma.Region, error) {
	shadow, err := t.control.Register(t.shadow)
	if err != nil {
		return nil, fail("register", -1, rdma.KindOf(err), err)
	}
	r, err := t.regions.Add(m, func() { t.withdraw(m, shadow) })
	if err != nil {
		return nil, fail("register", -1, rdma.ErrRefused, errors.Join(err, shadow.Close()))
	}
	for _, a := range t.registersWith() {
		if err := a.use(m, true); err != nil {
			return nil, fail("register", -1, rdma.ErrRefused, errors.Join(err, r.Close()))
		}
	}
	return r, nil
}

func (t *Transport) registersWith() []*agent {
	if t.serving != nil {
		return []*agent{t.serving}
	}
	var out []*agent
	for _, r := range t.readers {
		out = append(out, r.agent)
	}
	return out
}

// withdraw tells readers first, through the control channel, and the library then.
func (t *Transport) withdraw(m *rdma.Memory, shadow rdma.Region) {
	err := shadow.Close()
	for _, a := range t.registersWith() {
		err = errors.Join(err, a.unkeep(m))
	}
	if err != nil {
		t.cfg.Logger.Warn("withdraw region", "transport", Name, "error", err)
	}
}

// Access implements rdma.Transport.
func (t *Transport) Access() (rdma.Access, error) {
	if t.serving == nil {
		return rdma.Access{}, fail("access", -1, rdma.ErrUnavailable, errors.New("configured to read only"))
	}
	control, err := t.control.Access()
	if err != nil {
		return rdma.Access{}, fail("access", -1, rdma.KindOf(err), err)
	}
	md, err := t.lib.sys.LocalMetadata(t.serving.handle)
	if err != nil {
		return rdma.Access{}, fail("access", -1, rdma.ErrUnavailable, fmt.Errorf("describe agent: %w", err))
	}
	a := access{control: control.Metadata, name: t.serving.name, md: md}
	for _, r := range t.regions.All() {
		d := r.Describe()
		a.regions = append(a.regions, extent{d.Base, uint64(d.Nbytes)})
	}
	return rdma.Access{Transport: Name, Agent: t.serving.name, Metadata: a.encode()}, nil
}

// Guard implements rdma.Gated: by the control channel, which is asked at every connect and after every read. The fabric
// itself knows no leases.
func (t *Transport) Guard(admit rdma.Admit) { t.control.Guard(admit) }

// Connect implements rdma.Transport: the control channel first, which has deadlines, then a child process that tries the
// endpoint out, where one is configured, then the library.
func (t *Transport) Connect(ctx context.Context, r rdma.Remote) (rdma.Peer, error) {
	no := func(kind rdma.Kind, err error) error { return fail("connect", r.Rank, kind, err) }
	if r.Access.Transport != Name {
		return nil, no(rdma.ErrUnavailable, fmt.Errorf("access is of %q", r.Access.Transport))
	}
	a, err := decodeAccess(r.Access.Metadata)
	if err == nil {
		err = agree(a.regions, r.Regions)
	}
	if err != nil {
		return nil, no(rdma.ErrRefused, err)
	}
	control, err := t.connectControl(ctx, r, a.control)
	if err != nil {
		return nil, no(rdma.KindOf(err), fmt.Errorf("control channel: %w", err))
	}
	if err := t.probe(ctx, &r, &a); err != nil {
		return nil, errors.Join(no(rdma.KindOf(err), err), control.Close())
	}
	p, err := t.join(ctx, r, &a, control)
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	return p, nil
}

// connectControl connects to the shadows of the regions. An endpoint without a control channel, as a publisher in
// another language may be, is only asked by the library itself: its death shows when a read fails, no sooner.
func (t *Transport) connectControl(ctx context.Context, r rdma.Remote, metadata []byte) (rdma.Peer, error) {
	if len(metadata) == 0 {
		return uncontrolled{}, nil
	}
	r.Access = rdma.Access{Transport: tcp.Name, Metadata: metadata}
	shadows := make([]rdma.RemoteRegion, len(r.Regions))
	for i := range shadows {
		shadows[i].Nbytes = 1
	}
	r.Regions = shadows
	return t.control.Connect(ctx, r)
}

// uncontrolled stands for a control channel that isn't there.
type uncontrolled struct{}

func (uncontrolled) Read(*rdma.Memory, []rdma.Segment) (rdma.Transfer, error) {
	return uncontrolled{}, nil
}
func (uncontrolled) Wait(context.Context) error { return nil }
func (uncontrolled) Abort()                     {}
func (uncontrolled) Close() error               { return nil }

// join introduces a reading agent to the remote one and starts the peer.
func (t *Transport) join(ctx context.Context, r rdma.Remote, a *access, control rdma.Peer) (*peer, error) {
	rd, err := t.pick()
	if err != nil {
		return nil, fail("connect", r.Rank, rdma.KindOf(err), err)
	}
	if err := rd.introduce(ctx, a.name, a.md); err != nil {
		rd.leave()
		return nil, fail("connect", r.Rank, rdma.KindOf(err), err)
	}
	p, err := newPeer(t, rd, r, a.name, control)
	if err != nil {
		return nil, err
	}
	if !t.peers.Add(p) {
		return nil, errors.Join(fail("connect", r.Rank, rdma.ErrRefused, rdma.ErrClosed), p.Close())
	}
	return p, nil
}

// pick chooses the reading agent with the fewest peers, of those that aren't stuck in a call.
func (t *Transport) pick() (*reader, error) {
	t.picking.Lock()
	defer t.picking.Unlock()
	if t.peers.Closed() {
		return nil, fail("connect", -1, rdma.ErrRefused, rdma.ErrClosed)
	}
	var best *reader
	for _, r := range t.readers {
		if load := r.load(); load >= 0 && (best == nil || load < best.load()) {
			best = r
		}
	}
	if best == nil {
		return nil, fail("connect", -1, rdma.ErrTimeout, errors.New("all reading agents are stuck in the library"))
	}
	best.enter()
	return best, nil
}

// Close implements rdma.Transport. Agents with quarantined transfers are left alive.
func (t *Transport) Close() error {
	first, err := t.peers.Close()
	if !first {
		return err
	}
	errs := []error{err}
	t.regions.Close()
	for _, r := range t.readers {
		errs = append(errs, r.close())
	}
	if t.serving != nil {
		errs = append(errs, t.serving.close())
	}
	if t.control != nil {
		errs = append(errs, t.control.Close())
	}
	if t.shadow != nil {
		errs = append(errs, t.shadow.Close())
	}
	return errors.Join(errs...)
}
