package registry

import (
	"errors"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

func memory(t *testing.T) *rdma.Memory {
	t.Helper()
	m, err := rdma.Alloc(4096, rdma.AllocOptions{Backing: rdma.Anonymous})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRegionIsHeldUntilWithdrawnAndUnused(t *testing.T) {
	t.Parallel()
	var g Registry
	m := memory(t)
	withdrawn := 0
	r, err := g.Add(m, func() { withdrawn++ })
	if err != nil {
		t.Fatal(err)
	}
	got, done, err := g.Use(r.ID())
	if err != nil || got != m {
		t.Fatalf("%v, %v", got, err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if withdrawn != 1 || !r.Withdrawn() || m.Holds() != 1 {
		t.Errorf("withdrawn %d times, %d holds", withdrawn, m.Holds())
	}
	if _, _, err := g.Use(r.ID()); !errors.Is(err, errWithdrawn) {
		t.Errorf("use of a withdrawn region: %v", err)
	}
	done()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func TestNumbersAreGivenOnce(t *testing.T) {
	t.Parallel()
	var g Registry
	m := memory(t)
	for want := range uint32(3) {
		r, err := g.Add(m, nil)
		if err != nil || r.ID() != want {
			t.Fatalf("region %d, %v, want %d", r.ID(), err, want)
		}
		if want == 1 {
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(g.All()); n != 3 {
		t.Errorf("%d regions", n)
	}
	if _, _, err := g.Use(3); err == nil {
		t.Error("an unknown region was found")
	}
	g.Close()
	if _, err := g.Add(m, nil); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("add to a closed registry: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
