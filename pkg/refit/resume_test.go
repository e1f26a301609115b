package refit

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// smallBlocks makes arenas note digests of blocks that the tests' little model has several of.
func smallBlocks(c *ReceiverConfig) { c.blockBytes = 512 }

// remains is a copy of a receiver's arena folder: what is left when it is killed at this moment.
func (w *world) remains(r *Receiver) string {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "arenas")
	if err := os.CopyFS(dir, os.DirFS(r.ArenaRoot())); err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// nextLife starts a receiver on what another one has left.
func (w *world) nextLife(root string, change func(*ReceiverConfig)) *Receiver {
	w.t.Helper()
	return w.receiver(func(c *ReceiverConfig) {
		smallBlocks(c)
		c.ArenaRoot = root
		if change != nil {
			change(c)
		}
	})
}

// noted counts the blocks that a folder's lists say are whole.
func noted(t *testing.T, root string) (n int) {
	t.Helper()
	lists, err := filepath.Glob(filepath.Join(root, "slot-*", "*.blocks"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lists {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for b = b[min(64, len(b)):]; len(b) >= 8; b = b[8:] {
			if binary.LittleEndian.Uint64(b) != 0 {
				n++
			}
		}
	}
	return n
}

// TestARestartGoesOnWhereTheLastLifeEnded kills a receiver at each step of a refit from version 1 to 2.
func TestARestartGoesOnWhereTheLastLifeEnded(t *testing.T) {
	t.Parallel()
	for step, c := range map[string]struct {
		serves  uint64 // by name, after the kill
		mayRead bool
	}{
		"reading":    {1, true},
		"staged":     {1, false},
		"installing": {1, false},
		"applied":    {2, false},
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{ranks: 3})
			root, key := w.killedAt(step)
			r := w.nextLife(root, nil)
			w.serves(r, c.serves)
			if r.Serving() == key {
				return
			}
			stats := w.refit(r, key)
			w.serves(r, 2)
			switch {
			case c.mayRead && (stats.Resumed == 0 || stats.Brought+stats.Resumed != stats.Needed || stats.Wire == 0):
				t.Errorf("nothing was saved: %+v", stats)
			case !c.mayRead && (stats.Wire != 0 || stats.Resumed != stats.Needed):
				t.Errorf("bytes were read again: %+v", stats)
			}
			w.refit(r, w.publish(3))
			w.serves(r, 3)
		})
	}
}

// killedAt stages version 2 over version 1 and gives what is left when the receiver is killed at a step.
func (w *world) killedAt(step string) (root string, key messages.Key) {
	w.t.Helper()
	var r *Receiver
	var installing string
	r = w.receiver(func(c *ReceiverConfig) {
		smallBlocks(c)
		c.Installer = InstallerFunc(func(context.Context, Installation) (Report, error) {
			installing = w.remains(r)
			return Report{}, nil
		})
	})
	w.refit(r, w.publish(1))
	key = w.publish(2)
	if step == "reading" {
		return w.killedWhileReading(w.remains(r), key), key
	}
	s, err := r.Stage(w.ctx, key)
	if err != nil {
		w.t.Fatal(err)
	}
	staged := w.remains(r)
	if err := r.Apply(w.ctx, s); err != nil {
		w.t.Fatal(err)
	}
	return map[string]string{"staged": staged, "installing": installing, "applied": w.remains(r)}[step], key
}

// killedWhileReading waits until one rank does not answer and the others' bytes are there.
func (w *world) killedWhileReading(root string, key messages.Key) string {
	w.t.Helper()
	before := noted(w.t, root) // of what serves
	stalled := make(chan struct{}, 64)
	r := w.nextLife(root, func(c *ReceiverConfig) {
		c.Transports[0] = rdmatest.Faulty(c.Transports[0], rdmatest.Fault{
			Kind: rdmatest.Stall, Rank: 0, Injected: func(int, rdma.Segment, int64) { stalled <- struct{}{} },
		})
	})
	ctx, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if s, err := r.Stage(ctx, key); err == nil {
			r.Release(s)
			w.t.Error("the stage ended although a rank does not answer")
		}
	})
	defer wg.Wait()
	defer cancel()
	select {
	case <-stalled:
	case <-w.ctx.Done():
		w.t.Fatal("rank 0 was not read")
	}
	last, same := before, 0
	w.eventually("the other ranks' blocks came", func() bool {
		n := noted(w.t, r.ArenaRoot())
		if same++; n != last {
			last, same = n, 0
		}
		return n > before && same > 40 // nothing has come for a while: it may be late on a busy machine, which costs the test its point only
	})
	return w.remains(r)
}

// damage changes one byte of a file of the slot that serves, or of the other one.
func damage(t *testing.T, root string, serving bool, rank string) {
	t.Helper()
	current, err := os.Readlink(filepath.Join(root, "current"))
	if err != nil {
		t.Fatal(err)
	}
	slots, err := filepath.Glob(filepath.Join(root, "slot-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range slots {
		if (filepath.Base(slot) == current) != serving {
			continue
		}
		path := filepath.Join(slot, rank+".safetensors")
		b, err := os.ReadFile(path)
		if err == nil {
			b[len(b)-600] ^= 0x10
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestADamagedArenaIsStagedAnewWhereItIsDamaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 3})
	root, key := w.killedAt("staged")
	damage(t, root, false, "rank-1")
	r := w.nextLife(root, nil)
	stats := w.refit(r, key)
	w.serves(r, 2)
	if stats.Resumed == 0 || stats.Brought == 0 || stats.Brought+stats.Resumed != stats.Needed {
		t.Errorf("read %d and kept %d of %d bytes", stats.Brought, stats.Resumed, stats.Needed)
	}
}

func TestADamagedArenaThatServesIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 3})
	root, key := w.killedAt("applied")
	damage(t, root, true, "rank-0")
	r := w.nextLife(root, nil)
	if f := r.Status().Failure; f == nil || f.Class != string(CorruptArena) || f.Key != key {
		t.Fatalf("the status does not say so: %+v", f)
	}
	before, err := os.ReadFile(filepath.Join(root, "current", "rank-0.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	w.follow(r)
	w.eventually("replaced", func() bool { return !r.isDistrusted() })
	w.serves(r, 2)
	after, err := os.ReadFile(filepath.Join(root, "current", "rank-0.safetensors"))
	if err != nil || bytes.Equal(before, after) {
		t.Errorf("what serves has not changed: %v", err)
	}
}

func TestAfterARestartWhatServesIsKnownTileByTile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(smallBlocks)
	w.refit(r, w.publish(1))
	again := w.nextLife(w.remains(r), nil)
	stats := w.refit(again, w.mustPublishMix(2, only(2, "down"), nil).Key)
	w.servesMix(again, only(2, "down"))
	if stats.Saved == 0 {
		t.Errorf("everything was read: %+v", stats)
	}
}

func TestAReleasedVersionIsNotReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(nil)
	w.refit(r, w.publish(1))
	s, err := r.Stage(w.ctx, w.publish(2))
	if err != nil {
		t.Fatal(err)
	}
	r.Release(s)
	if stats := w.refit(r, s.Key()); stats.Wire != 0 || stats.Resumed != stats.Needed {
		t.Errorf("%+v", stats)
	}
	w.serves(r, 2)
}

// TestANormalStopGoesOnAsACrash closes a receiver between Stage and Apply: the next life has the version, and reads nothing.
func TestANormalStopGoesOnAsACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(smallBlocks)
	w.refit(r, w.publish(1))
	s, err := r.Stage(w.ctx, w.publish(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(w.ctx, s); err == nil {
		t.Fatal("a closed receiver applies")
	}
	again := w.nextLife(r.ArenaRoot(), nil)
	w.serves(again, 1)
	if stats := w.refit(again, s.Key()); stats.Wire != 0 || stats.Resumed != stats.Needed {
		t.Errorf("read again: %+v", stats)
	}
	w.serves(again, 2)
}

// TestPaddedBlocksNeedNotBeReadAgain cuts a stage off while one of two ranks does not answer. The other's parameter ends
// with constants in the middle of a block: that block is whole, too.
func TestPaddedBlocksNeedNotBeReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	const copied, row = 30, 48 * 2 // rows that come from rank 0, and bytes of each
	padded := func(c *ReceiverConfig) {
		smallBlocks(c)
		c.Dests = []plan.Dest{{
			Params: []plan.Param{{Name: "padded", DType: plan.BF16, Shape: []int64{32, 48}}, {Name: "other", DType: plan.BF16, Shape: []int64{16, 64}}},
			Copies: []plan.Copy{
				{Source: "up", Ops: narrowed(0, 0, copied), Param: 0, Shape: []int64{copied, 48}, Stride: []int64{48, 1}},
				{Source: "down", Ops: narrowed(0, 16, 16), Param: 1, Shape: []int64{16, 64}, Stride: []int64{64, 1}},
			},
			Fills: []plan.Fill{{Param: 0, Offset: copied * 48, Shape: []int64{2, 48}, Stride: []int64{48, 1}, Value: 1}},
		}}
	}
	r := w.receiver(func(c *ReceiverConfig) {
		padded(c)
		c.Stall = 300 * time.Millisecond
		c.Transports[0] = rdmatest.Faulty(c.Transports[0], rdmatest.Fault{Kind: rdmatest.Stall, Rank: 1})
	})
	key := w.publish(1)
	_ = w.fails(r, key, Deadline)
	again := w.nextLife(w.remains(r), padded)
	if stats := w.refit(again, key); stats.Resumed != copied*row {
		t.Errorf("resumed %d bytes, want the %d that rank 0 has", stats.Resumed, copied*row)
	}
	f, err := safetensors.Open(filepath.Join(again.ArenaRoot(), "current", "rank-0.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	tensor, _ := f.Find("padded")
	want := slices.Concat(content(model[0], 1)[:copied*row], bytes.Repeat([]byte{0x80, 0x3f}, 2*48))
	if !bytes.Equal(f.Bytes(tensor), want) {
		t.Error("other bytes are served")
	}
}

// TestWhatAnAttemptForesawIsForgottenWithIt has the first attempts at batches bring a wrong bit each. What is noted beside the
// arenas must be of the bytes that came in the end.
func TestWhatAnAttemptForesawIsForgottenWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	for seed := range uint64(8) {
		hits := 0
		var mu sync.Mutex
		r := w.receiver(func(c *ReceiverConfig) {
			smallBlocks(c)
			c.Name = fmt.Sprintf("receiver-%d", seed)
			c.Transports[0] = rdmatest.Faulty(c.Transports[0], rdmatest.Fault{
				Kind: rdmatest.Corrupt, Rank: int(seed % 2), Count: 1, Seed: seed,
				Injected: func(int, rdma.Segment, int64) { mu.Lock(); defer mu.Unlock(); hits++ },
			})
		})
		w.refit(r, w.publish(seed+1))
		w.serves(r, seed+1)
		if found, ok := r.arenas.Verify(1); !ok || !found.Whole || len(found.Damaged) > 0 {
			t.Errorf("seed %d, %d wrong bits: noted was something else: %+v", seed, hits, found)
		}
		if hits == 0 {
			t.Error("no attempt failed: the test says nothing")
		}
	}
}

// narrowed is a slice of one dimension.
func narrowed(dim, start, n int64) []plan.Op {
	return []plan.Op{{Name: "narrow", Args: []plan.Arg{{Int: dim}, {Int: start}, {Int: n}}}}
}

// TestEachLifeIsIdempotent restarts a receiver again and again without anything new: nothing is read, nothing is left behind.
func TestEachLifeIsIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(smallBlocks)
	key := w.publish(1)
	w.refit(r, key)
	root := w.remains(r)
	for range 3 {
		life := w.nextLife(root, nil)
		if life.Serving() != key || life.isDistrusted() {
			t.Fatalf("serves %s, distrusted %t", life.Serving(), life.isDistrusted())
		}
		w.serves(life, 1)
		if err := life.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatWasRefusedAsUnverifiedIsNotTakenTheNextTime: the bytes lie in the arena then, and nothing of them is read again.
func TestWhatWasRefusedAsUnverifiedIsNotTakenTheNextTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	withoutDigests(w)
	floor := func(c *ReceiverConfig) { c.VerifyFloor = 0.5 }
	r := w.receiver(func(c *ReceiverConfig) { smallBlocks(c); floor(c) })
	key := w.publish(1)
	for range 2 {
		_ = w.fails(r, key, Unverified)
		w.servesNothing(r)
	}
	again := w.nextLife(w.remains(r), floor)
	_ = w.fails(again, key, Unverified)
	w.servesNothing(again)
}

// TestAHigherFloorHoldsForWhatWasStagedBefore: a version that was sealed under a lower floor is not taken over.
func TestAHigherFloorHoldsForWhatWasStagedBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	withoutDigests(w)
	r := w.receiver(smallBlocks)
	key := w.publish(1)
	if _, err := r.Stage(w.ctx, key); err != nil {
		t.Fatal(err)
	}
	again := w.nextLife(w.remains(r), func(c *ReceiverConfig) { c.VerifyFloor = 1 })
	_ = w.fails(again, key, Unverified)
	w.servesNothing(again)
}

// otherHalves swaps what the two destinations take of a matrix: the same parameters, made otherwise.
func otherHalves(c *ReceiverConfig) {
	for rank := range 2 {
		c.Dests[rank].Copies[0].Ops = destination(1 - rank).Copies[0].Ops
	}
}

// TestAnotherCaptureIsNotServedBytesOfTheOneBefore restarts a receiver with a capture that makes the same parameters of
// other parts of the sources: neither what was staged nor what did not change since is its own.
func TestAnotherCaptureIsNotServedBytesOfTheOneBefore(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]uint64{"the same version": 1, "a version of which a part changed": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{ranks: 2})
			r := w.receiver(smallBlocks)
			key := w.publish(1)
			w.refit(r, key)
			if version == 2 {
				key = w.mustPublishMix(2, only(2, "down"), nil).Key
			}
			again := w.nextLife(w.remains(r), otherHalves)
			if got := again.Serving(); !got.IsZero() {
				t.Errorf("what another capture made counts as served: %s", got)
			}
			w.follow(again)
			w.eventually("served", func() bool { return again.Serving() == key })
			want := content(model[0], 1)
			for rank := range 2 {
				half := want[(1-rank)*len(want)/2 : (2-rank)*len(want)/2]
				if !bytes.Equal(w.parameter(again, rank, "up"), half) {
					t.Errorf("rank %d serves what the earlier capture made", rank)
				}
			}
		})
	}
}

// parameter is what a receiver serves of one parameter.
func (w *world) parameter(r *Receiver, rank int, name string) []byte {
	w.t.Helper()
	f, err := safetensors.Open(filepath.Join(r.ArenaRoot(), "current", fmt.Sprintf("rank-%d.safetensors", rank)))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	tensor, found := f.Find(name)
	if !found {
		w.t.Fatalf("rank %d serves no %s", rank, name)
	}
	return bytes.Clone(f.Bytes(tensor))
}

// TestADamagedHeaderIsDamage changes a tensor's name in what serves: the header still parses, and engines would find
// another tensor.
func TestADamagedHeaderIsDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{ranks: 2})
	r := w.receiver(smallBlocks)
	key := w.publish(1)
	w.refit(r, key)
	root := w.remains(r)
	path := filepath.Join(root, "current", "rank-0.safetensors")
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, bytes.Replace(b, []byte(`"padded"`), []byte(`"pidded"`), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	again := w.nextLife(root, nil)
	if f := again.Status().Failure; f == nil || f.Class != string(CorruptArena) || !strings.Contains(f.Text, "header") {
		t.Fatalf("the status does not say so: %+v", f)
	}
	w.follow(again)
	w.eventually("replaced", func() bool { return !again.isDistrusted() })
	w.serves(again, 1)
}
