package sidecar

import (
	"slices"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// publishOn does a whole step whose version is a difference from an earlier one.
func (tr *trainer) publishOn(version, base uint64, changed ...string) VersionAnswer {
	tr.w.t.Helper()
	a := tr.begin(version)
	tr.fill(a.Slot, version)
	r := tr.request(version, a.Slot)
	r.Base, r.Changed = &base, changed
	var out VersionAnswer
	tr.w.asks("POST", path(tr.rank, "publish"), r, &out)
	return out
}

// assembled is a version as receivers see it.
func (w *world) assembled(version uint64) *messages.Version {
	w.t.Helper()
	v, err := w.control.Assemble(w.ctx, w.committed(version))
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// TestADifferenceStandsOnItsBase publishes differences, one upon the other, and one upon nothing that is known.
func TestADifferenceStandsOnItsBase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tr := w.attach(0, 1, "a")
	tr.publish(1)
	base := w.assembled(1).Ref()
	for version := uint64(2); version <= 3; version++ {
		out := tr.publishOn(version, version-1, "norm")
		v := w.assembled(version)
		if out.Base == nil || *out.Base != version-1 || !slices.Equal(v.Changed(), []string{"norm"}) || v.StagesOn(base) != nil {
			t.Fatalf("version %d: %+v, changed %q, its base is %v", version, out, v.Changed(), v.Manifest.Base)
		}
		base = v.Ref()
	}
	if out := tr.publishOn(4, 3); out.Base == nil || len(w.assembled(4).Changed()) != 0 {
		t.Errorf("nothing changed: %+v, %q", out, w.assembled(4).Changed())
	}
	// Version 2 has been withdrawn for the slot, and this life of the sidecar still knows what it was.
	if out := tr.publishOn(5, 2, "up"); out.Base == nil || *out.Base != 2 {
		t.Errorf("a base that was withdrawn: %+v", out)
	}
	if out := tr.publishOn(9, 7, "up"); out.Base != nil || w.assembled(9).Partial() {
		t.Errorf("a base that never was: %+v", out)
	}
}

// TestABaseOfAnEarlierLifeIsForgotten: its versions were withdrawn when the sidecar was started again, and nobody can say
// what they were. The slot holds everything, so the next version is whole, whatever its trainer asks for.
func TestABaseOfAnEarlierLifeIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.attach(0, 1, "a").publish(1)
	w.stop()
	w.start()
	out := w.attach(0, 1, "a").publishOn(2, 1, "norm")
	if out.State != Committed || out.Base != nil || w.assembled(2).Partial() {
		t.Errorf("%+v", out)
	}
}

func TestDifferencesThatContradictThemselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tr := w.attach(0, 1, "a")
	tr.publish(1)
	a := tr.begin(2)
	one, two := uint64(1), uint64(2)
	for name, r := range map[string]VersionRequest{
		"no base":       {Changed: []string{"norm"}},
		"itself":        {Base: &two},
		"no such names": {Base: &one, Changed: []string{"norm", "nrom"}},
	} {
		r.Session, r.Generation, r.Version, r.Slot = tr.session, tr.answer.Generation, 2, a.Slot
		if code := w.ask("POST", path(0, "publish"), r, nil); code != BadRequest {
			t.Errorf("%s: %q", name, code)
		}
	}
	if out := tr.publishOn(2, 1, "norm"); out.State != Committed {
		t.Errorf("after refusals: %+v", out)
	}
}
