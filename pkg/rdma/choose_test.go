package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// stub is a transport whose connects end as told.
type stub struct {
	rdma.Transport
	name   string
	err    error
	nextID uint32
	open   int
}

func (s *stub) Name() string { return s.name }

func (s *stub) Connect(_ context.Context, r rdma.Remote) (rdma.Peer, error) {
	if s.err != nil {
		return nil, s.err
	}
	return stubPeer{via: r.Access.Transport}, nil
}

func (s *stub) Register(*rdma.Memory) (rdma.Region, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.nextID++
	s.open++
	return &stubRegion{s: s, id: s.nextID - 1}, nil
}

func (s *stub) Access() (rdma.Access, error) { return rdma.Access{Transport: s.name}, s.err }

type stubPeer struct {
	rdma.Peer
	via string
}

type stubRegion struct {
	s  *stub
	id uint32
}

func (r *stubRegion) ID() uint32                  { return r.id }
func (r *stubRegion) Describe() rdma.RemoteRegion { return rdma.RemoteRegion{} }
func (r *stubRegion) Close() error                { r.s.open--; return nil }

func failing(name string, kind rdma.Kind) *stub {
	return &stub{name: name, err: &rdma.Error{Kind: kind, Op: "connect", Transport: name, Rank: 2, Err: errors.New("because")}}
}

func TestConnectTakesTheFirstThatWorksAndSaysWhyNotTheOthers(t *testing.T) {
	t.Parallel()
	offers := []rdma.Access{{Transport: "tcp"}, {Transport: "local"}, {Transport: "nixl"}}
	tcp := &stub{name: "tcp"}
	for _, c := range []struct {
		name    string
		prefer  []rdma.Transport
		offers  []rdma.Access
		taken   string
		skipped []string
		kind    rdma.Kind
	}{
		{"first", []rdma.Transport{&stub{name: "local"}, tcp}, offers, "local", nil, 0},
		{"falls back", []rdma.Transport{failing("local", rdma.ErrUnavailable), failing("nixl", rdma.ErrUnreachable), tcp}, offers, "tcp", []string{"local", "nixl"}, 0},
		{"not offered", []rdma.Transport{&stub{name: "local"}, tcp}, offers[:1], "tcp", []string{"local"}, 0},
		{"stale ends it", []rdma.Transport{failing("local", rdma.ErrStale), tcp}, offers, "", []string{"local"}, rdma.ErrStale},
		{"insists", []rdma.Transport{&stub{name: "nixl"}}, offers[:2], "", []string{"nixl"}, rdma.ErrUnavailable},
		{"none works", []rdma.Transport{failing("local", rdma.ErrUnavailable), failing("tcp", rdma.ErrUnreachable)}, offers, "", []string{"local", "tcp"}, rdma.ErrUnreachable},
		{"none configured", nil, offers, "", nil, rdma.ErrUnavailable},
	} {
		p, choice, err := rdma.Connect(t.Context(), c.prefer, rdma.Offer{Remote: rdma.Remote{Rank: 2}, Accesses: c.offers})
		if choice.Transport != c.taken || rdma.KindOf(err) != c.kind || len(choice.Skipped) != len(c.skipped) {
			t.Errorf("%s: %q, %v", c.name, choice, err)
			continue
		}
		if c.taken != "" && p != rdma.Peer(stubPeer{via: c.taken}) {
			t.Errorf("%s: the access handed over is of %+v", c.name, p)
		}
		for i, s := range c.skipped {
			if choice.Skipped[i].Transport != s || !strings.Contains(choice.String(), choice.Skipped[i].Reason.Error()) {
				t.Errorf("%s: skipped %v", c.name, choice.Skipped)
			}
		}
	}
}

func TestRegisterAllIsAllOrNothing(t *testing.T) {
	t.Parallel()
	a, b := &stub{name: "a"}, &stub{name: "b"}
	rs, err := rdma.RegisterAll([]rdma.Transport{a, b}, nil)
	if err != nil || rs.ID() != 0 || len(rs) != 2 {
		t.Fatalf("%v, %v", rs, err)
	}
	if _, err := rdma.RegisterAll([]rdma.Transport{a, failing("c", rdma.ErrRefused)}, nil); err == nil || a.open != 1 {
		t.Fatalf("%v with %d regions open", err, a.open)
	}
	if _, err := rdma.RegisterAll([]rdma.Transport{a, b}, nil); err == nil || a.open != 1 || b.open != 1 {
		t.Fatalf("numbers that differ: %v with %d and %d regions open", err, a.open, b.open)
	}
	if err := rs.Close(); err != nil || a.open != 0 || b.open != 0 {
		t.Fatalf("close: %v with %d and %d regions open", err, a.open, b.open)
	}
	if as, err := rdma.AccessAll([]rdma.Transport{a, b}); err != nil || len(as) != 2 {
		t.Fatalf("access: %v, %v", as, err)
	}
}

func TestErrorsCarryTheirKindThroughWrapping(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for k := rdma.ErrUnreachable; k <= rdma.ErrQuarantined; k++ {
		e := &rdma.Error{Kind: k, Op: "read", Transport: "tcp", Rank: 7, Err: cause}
		err := fmt.Errorf("stage: %w", e)
		if !errors.Is(err, k) || rdma.KindOf(err) != k || !errors.Is(err, cause) {
			t.Errorf("%v: kind lost", k)
		}
		if k.Leaves() == "" {
			t.Errorf("%v doesn't say what it leaves behind", k)
		}
		for _, part := range []string{"tcp read from rank 7", k.String(), "cause", k.Leaves()} {
			if !strings.Contains(e.Error(), part) {
				t.Errorf("%q lacks %q", e, part)
			}
		}
		if errors.Is(err, k+1) {
			t.Errorf("%v matches %v", k, k+1)
		}
	}
	if k := rdma.KindOf(context.Canceled); k != 0 {
		t.Errorf("a context's end has kind %v", k)
	}
}
