package refit

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// mix says which version's value the byte k of a tensor has: versions of which a part changed.
type mix func(name string, k int64) uint64

// only is a mix in which the tensors named have the values of a version, and all others those of version 1.
func only(version uint64, names ...string) mix {
	return func(name string, _ int64) uint64 {
		for _, n := range names {
			if n == name {
				return version
			}
		}
		return 1
	}
}

// publishMix is publish with a mix. A base says that the version is declared as a difference from it, in the sources named.
func (w *world) publishMix(version uint64, m mix, base *messages.Ref, changed ...string) (*messages.Manifest, error) {
	w.t.Helper()
	manifests, errs := make([]*messages.Manifest, len(w.ranks)), make([]error, len(w.ranks))
	var wg sync.WaitGroup
	for i, p := range w.ranks {
		wg.Go(func() {
			mem, err := p.Memory(w.ctx, version)
			if err != nil {
				errs[i] = err
				return
			}
			fillMix(mem.Bytes(), p.cfg.Layout, m)
			manifests[i], errs[i] = p.PublishChange(w.ctx, version, Change{Base: base, Sources: changed})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return manifests[0], nil
}

func (w *world) mustPublishMix(version uint64, m mix, base *messages.Ref, changed ...string) *messages.Manifest {
	w.t.Helper()
	made, err := w.publishMix(version, m, base, changed...)
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

// fillMix writes a rank's shards.
func fillMix(mem []byte, l *messages.Layout, m mix) {
	box := 0
	for k, t := range model {
		lo, row := l.Box[box], rowBytes(t)
		for i := range (l.Box[box+1] - lo) * row {
			mem[l.Offset[k]+i] = value(t.name, m(t.name, lo*row+i), lo*row+i)
		}
		box += 2 * len(t.shape)
	}
}

func rowBytes(t tensor) int64 {
	n := t.dtype.Size()
	for _, d := range t.shape[1:] {
		n *= d
	}
	return n
}

// servesMix compares every byte of up and down with a mix.
func (w *world) servesMix(r *Receiver, m mix) {
	w.t.Helper()
	up, down := contentMix(model[0], m), contentMix(model[1], m)
	for rank := range 2 {
		want := map[string][]byte{"up": up[rank*len(up)/2 : (rank+1)*len(up)/2]}
		for row := range 32 {
			want["down"] = append(want["down"], down[row*128+rank*64:][:64]...)
		}
		f, err := safetensors.Open(filepath.Join(r.ArenaRoot(), "current", []string{"rank-0", "rank-1"}[rank]+".safetensors"))
		if err != nil {
			w.t.Fatal(err)
		}
		for name, b := range want {
			if tensor, ok := f.Find(name); !ok || !bytes.Equal(f.Bytes(tensor), b) {
				w.t.Errorf("rank %d: parameter %s differs", rank, name)
			}
		}
		if err := f.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

func contentMix(t tensor, m mix) []byte {
	b := make([]byte, t.shape[0]*rowBytes(t))
	for k := range b {
		b[k] = value(t.name, m(t.name, int64(k)), int64(k))
	}
	return b
}

func TestWhatDidNotChangeIsNotReadAgain(t *testing.T) {
	t.Parallel()
	const up, down = 64 * 48 * 2, 32 * 64 * 2
	firstRows := func(name string, k int64) uint64 { // 16 of up's 64 rows: those of one tile and a few
		if name == "up" && k < 16*rowBytes(model[0]) {
			return 2
		}
		return 1
	}
	for name, c := range map[string]struct {
		mix           mix
		least, most   int64 // bytes read
		ranksReadFrom int
	}{
		"one matrix":  {only(2, "down"), down, down, 3},
		"some rows":   {firstRows, 16 * 48 * 2, up / 2, 1},
		"nothing":     {only(2), 0, 0, 0},
		"two tensors": {only(2, "norm", "up"), up, up + 2*74, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{ranks: 3})
			r := w.receiver(nil)
			first := w.refit(r, w.publish(1))
			stats := w.refit(r, w.mustPublishMix(2, c.mix, nil).Key)
			w.servesMix(r, c.mix)
			if stats.Wire < c.least || stats.Wire > c.most || stats.Ranks != c.ranksReadFrom {
				t.Errorf("read %d bytes of %d ranks, want %d to %d of %d", stats.Wire, stats.Ranks, c.least, c.most, c.ranksReadFrom)
			}
			if stats.Needed+stats.Saved != first.Needed || stats.Verified != stats.Brought {
				t.Errorf("needed %d and saved %d of %d, verified %d of %d", stats.Needed, stats.Saved, first.Needed, stats.Verified, stats.Brought)
			}
			w.refit(r, w.publish(3)) // everything differs
			w.serves(r, 3)
		})
	}
}

func TestTheBaseIsWhatServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	w.refit(r, w.publish(1))
	two, err := r.Stage(w.ctx, w.mustPublishMix(2, only(2, "up"), nil).Key)
	if err != nil {
		t.Fatal(err)
	}
	r.Release(two) // its arena holds version 2's up, and is staged into next
	w.refit(r, w.mustPublishMix(3, only(3, "down"), nil).Key)
	w.servesMix(r, only(3, "down"))
	w.refit(r, w.mustPublishMix(4, only(4, "up"), nil).Key) // both matrices differ from what serves, one as it was before
	w.servesMix(r, only(4, "up"))
}

func TestReadAllReadsAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(func(c *ReceiverConfig) { c.ReadAll = true })
	w.refit(r, w.publish(1))
	if stats := w.refit(r, w.mustPublishMix(2, only(2, "up"), nil).Key); stats.Saved != 0 || stats.Brought != stats.Needed {
		t.Errorf("%+v", stats)
	}
}

// withoutDigests has ranks that digest nothing: only what versions declare says what changed.
func withoutDigests(w *world) {
	for _, p := range w.ranks {
		p.cfg.Layout.Grid = nil
	}
}

func TestADeclaredChangeIsStagedOnItsBaseOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	withoutDigests(w)
	r, late := w.receiver(nil), w.receiver(func(c *ReceiverConfig) { c.Name = "late" })
	base := w.mustPublishMix(1, only(1), nil)
	w.refit(r, base.Key)
	ref := base.Ref()
	change := w.mustPublishMix(2, only(2, "down"), &ref, "down")
	if stats := w.refit(r, change.Key); stats.Needed != 32*64*2 || stats.Saved == 0 {
		t.Errorf("on its base: %+v", stats)
	}
	w.servesMix(r, only(2, "down"))
	if stats := w.refit(late, change.Key); stats.Saved != 0 {
		t.Errorf("without the base: %+v", stats)
	}
	w.servesMix(late, only(2, "down"))
	again := w.mustPublishMix(3, only(3, "up"), &ref, "up") // version 2 serves, and not its base
	if stats := w.refit(r, again.Key); stats.Saved != 0 {
		t.Errorf("on another version than its base: %+v", stats)
	}
	w.servesMix(r, only(3, "up"))
}

func TestAFalseDeclarationIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	base := w.mustPublishMix(1, only(1), nil)
	w.refit(r, base.Key)
	ref := base.Ref()
	lie := w.mustPublishMix(2, only(2, "down", "up"), &ref, "down")
	err := w.fails(r, lie.Key, Torn)
	if !strings.Contains(err.Error(), `"up"`) || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("the error names neither rank nor source: %v", err)
	}
	w.servesMix(r, only(1))
}

func TestADifferenceIsVerifiedAndRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.faulty(rdmatest.Fault{Kind: rdmatest.Corrupt, Rank: -1, After: 9, Count: 1})
	w.refit(r, w.publish(1))
	for v := uint64(2); v <= 4; v++ {
		w.refit(r, w.mustPublishMix(v, only(v, "up"), nil).Key)
		w.servesMix(r, only(v, "up"))
	}
}

func TestGoingBackReadsWhatDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	one := w.publish(1)
	w.refit(r, one)
	w.refit(r, w.mustPublishMix(2, only(2, "up"), nil).Key)
	order, err := w.control.Rollback(w.ctx, one, "a test", "to see")
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.StageRollback(w.ctx, order)
	if err == nil {
		err = r.Apply(w.ctx, s)
	}
	if err != nil || s.Stats().Saved == 0 {
		t.Fatalf("%v, %+v", err, s.Stats())
	}
	w.serves(r, 1)
}

func TestAPolicyHoldsTheTrainerForItsSlowestReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 1})
	p := w.ranks[0]
	p.cfg.Keep = messages.Keep{Every: true, Readers: []string{"receiver"}}
	p.cfg.DrainTimeout = 300 * time.Millisecond
	r := w.receiver(nil)
	one := w.publish(1)
	w.publish(2)
	_, err := p.Memory(w.ctx, 3)
	if err == nil || !strings.Contains(err.Error(), "behind are receiver") {
		t.Fatalf("version 1 was given up although nobody has read it: %v", err)
	}
	p.cfg.DrainTimeout = patience
	w.refit(r, one)
	if err := w.control.PutStatus(w.ctx, "receiver", r.Status()); err != nil {
		t.Fatal(err)
	}
	w.publish(3)
	w.refit(r, w.ranks[0].Key(3))
	w.serves(r, 3)
}

func TestADamagedBaseIsNotTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	w.refit(r, w.publish(1))
	f, err := safetensors.Open(r.files(r.arenas.Serving())[1])
	if err != nil {
		t.Fatal(err)
	}
	up, _ := f.Find("up")
	at := bytes.Index(r.arenas.Serving().Memory(1).Bytes(), f.Bytes(up))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r.arenas.Serving().Memory(1).Bytes()[at+7] ^= 0x10 // a stray write
	stats := w.refit(r, w.mustPublishMix(2, only(2, "down"), nil).Key)
	w.servesMix(r, only(2, "down"))
	if stats.Saved != 0 {
		t.Errorf("%d bytes were taken over from a damaged arena", stats.Saved)
	}
	if stats := w.refit(r, w.mustPublishMix(3, only(3, "down"), nil).Key); stats.Saved == 0 {
		t.Error("nothing is saved on top of an arena that is whole again")
	}
	w.servesMix(r, only(3, "down"))
}
