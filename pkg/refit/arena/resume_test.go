package arena

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// large has tensors of several blocks, one that ends in the middle of one, and a rank of less than a block.
func large(t *testing.T) Config {
	t.Helper()
	return Config{Root: filepath.Join(t.TempDir(), "arenas"), Ranks: []Rank{
		{Rank: 0, Tensors: []safetensors.Spec{
			{Name: "w", DType: "BF16", Shape: []int64{512, 1024}}, // 4 blocks
			{Name: "v", DType: "BF16", Shape: []int64{300, 500}},
			{Name: "none", DType: "F32", Shape: []int64{0}},
		}},
		{Rank: 2, Tensors: []safetensors.Spec{{Name: "w", DType: "F32", Shape: []int64{100}}}},
	}}
}

const blockBytes = 256 << 10 // the default

var (
	one     = Version{Model: "m", Run: 1, Version: 1}
	content = Content{7}
)

// die ends a set's life as a crash does: nothing is removed, nothing is said.
func die(t *testing.T, s *Set) {
	t.Helper()
	for _, slot := range s.slots {
		if err := slot.unmap(); err != nil {
			t.Fatal(err)
		}
	}
	s.slots = nil
	if err := s.lock.Close(); err != nil {
		t.Fatal(err)
	}
	s.lock = nil
}

func resume(t *testing.T, s *Set, v Version, c Content) (*Slot, Found) {
	t.Helper()
	slot, found, err := s.Resume(v, c, 2)
	if err != nil {
		t.Fatal(err)
	}
	return slot, found
}

// value is what byte k of a rank's file holds.
func value(rank int, k int64) byte { return byte(k*7+k>>9*13) + byte(rank) }

// write brings a region.
func write(slot *Slot, i int, r Region) {
	b := slot.Memory(i).Bytes()
	r.each(func(lo, hi int64) bool {
		for k := lo; k < hi; k++ {
			b[k] = value(i, k)
		}
		return true
	})
	slot.Came(i, r)
}

// wholeFile is all tensors of a rank.
func wholeFile(s *Set, i int) []Region {
	var all []Region
	for k, off := range s.files[i].offsets {
		all = append(all, Region{Off: off, Run: s.files[i].sizes[k]})
	}
	return all
}

func writeAll(s *Set, slot *Slot) {
	for i := range s.files {
		for _, r := range wholeFile(s, i) {
			write(slot, i, r)
		}
	}
}

func tensorBytes(s *Set) (sum int64) {
	for _, f := range s.files {
		for _, n := range f.sizes {
			sum += n
		}
	}
	return sum
}

// staged has version one in a slot, sealed, and dies.
func staged(t *testing.T, cfg Config, flipped bool) (dir string) {
	t.Helper()
	s := mustOpen(t, cfg)
	slot, found := resume(t, s, one, content)
	if found.Nbytes != 0 || found.Whole {
		t.Fatalf("a new slot holds %+v", found)
	}
	writeAll(s, slot)
	if err := s.Seal(slot, one); err != nil {
		t.Fatal(err)
	}
	if flipped {
		flip(t, s, slot)
	}
	dir = slot.Dir()
	die(t, s)
	return dir
}

func TestWhatWasStagedIsFoundAfterACrash(t *testing.T) {
	t.Parallel()
	cfg := large(t)
	dir := staged(t, cfg, false)
	s := mustOpen(t, cfg)
	slot, found := resume(t, s, one, content)
	if !found.Whole || found.Nbytes != tensorBytes(s) || slot.Dir() != dir || slot.Holds() != one || len(found.Damaged) != 0 {
		t.Fatalf("found %+v in %s, which holds %+v", found, slot.Dir(), slot.Holds())
	}
	flip(t, s, slot)
	f := readCurrent(t, s, "rank-0.safetensors")
	w, _ := f.Find("w")
	if got := f.Bytes(w); got[0] != value(0, w.Offset) || got[len(got)-1] != value(0, w.Offset+w.Nbytes-1) {
		t.Error("other bytes are served")
	}
	_ = f.Close()
	if found, ok := s.Verify(2); !ok || !found.Whole || len(found.Damaged) != 0 {
		t.Errorf("what serves is not as it was noted: %+v, %t", found, ok)
	}
}

func TestOnlyTheSameVersionIsTakenOver(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]struct {
		v Version
		c Content
	}{
		"another version": {Version{Model: "m", Run: 1, Version: 2}, content},
		"another run":     {Version{Model: "m", Run: 2, Version: 1}, content},
		"another model":   {Version{Model: "n", Run: 1, Version: 1}, content},
		"other bytes":     {one, Content{8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := large(t)
			staged(t, cfg, false)
			s := mustOpen(t, cfg)
			for range slotCount { // whichever slot it is
				slot, found := resume(t, s, other.v, other.c)
				if found.Nbytes != 0 || found.Whole || slot.Has(0, wholeFile(s, 0)[0]) || !slot.Holds().IsZero() {
					t.Errorf("found %+v in a slot that holds %+v", found, slot.Holds())
				}
			}
		})
	}
}

func TestDamageIsFoundAndOnlyItIsMissing(t *testing.T) {
	t.Parallel()
	cfg := large(t)
	dir := staged(t, cfg, false)
	path := filepath.Join(dir, "rank-0.safetensors")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(4096 + 2*blockBytes + 17)
	if _, err := f.WriteAt([]byte{^value(0, at)}, at); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()

	s := mustOpen(t, cfg)
	slot, found := resume(t, s, one, content)
	if found.Whole || len(found.Damaged) != 1 || !strings.Contains(found.Damaged[0], path) || !slot.Holds().IsZero() {
		t.Fatalf("found %+v, the slot holds %+v", found, slot.Holds())
	}
	if slot.Has(0, Region{Off: at, Run: 1}) || !slot.Has(0, Region{Off: at - blockBytes, Run: 1}) || !slot.Has(1, wholeFile(s, 1)[0]) {
		t.Error("the wrong blocks are missing")
	}
	lo, hi := s.files[0].block(2)
	write(slot, 0, Region{Off: lo, Run: hi - lo})
	write(slot, 1, wholeFile(s, 1)[0]) // again, although it was whole: with the same bytes
	if err := s.Seal(slot, one); err != nil {
		t.Fatal(err)
	}
	flip(t, s, slot)
	if found, ok := s.Verify(2); !ok || !found.Whole || found.Nbytes != tensorBytes(s) || len(found.Damaged) != 0 {
		t.Errorf("after the repair: %+v, %t", found, ok)
	}
}

func TestAnotherLifeFindsDamageInWhatServes(t *testing.T) {
	t.Parallel()
	cfg := large(t)
	dir := staged(t, cfg, true)
	path := filepath.Join(dir, "rank-2.safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, cfg)
	found, ok := s.Verify(2)
	if !ok || len(found.Damaged) != 1 || !strings.Contains(found.Damaged[0], path) {
		t.Errorf("found %+v, %t", found, ok)
	}
}

func TestAListThatIsDamagedKeepsNothing(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"no list":          func([]byte) []byte { return nil },
		"cut":              func(b []byte) []byte { return b[:len(b)-1] },
		"another magic":    func(b []byte) []byte { b[0]++; return b },
		"another label":    func(b []byte) []byte { b[8]++; return b },
		"another block":    func(b []byte) []byte { b[41]++; return b },
		"a digest changed": func(b []byte) []byte { b[len(b)-1]++; return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := large(t)
			path := filepath.Join(staged(t, cfg, false), "rank-2.blocks")
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, damage(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, cfg)
			slot, found := resume(t, s, one, content)
			if found.Whole || slot.Has(1, wholeFile(s, 1)[0]) {
				t.Errorf("found %+v", found)
			}
		})
	}
}

func TestReadersOfAWholeSlotAreNoHindranceToIt(t *testing.T) {
	t.Parallel()
	cfg := large(t)
	dir := staged(t, cfg, false)
	s := mustOpen(t, cfg)
	reader, err := safetensors.Open(filepath.Join(dir, "rank-0.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	slot, found := resume(t, s, one, content)
	if !found.Whole || slot.Dir() != dir {
		t.Fatalf("found %+v in %s", found, slot.Dir())
	}
	s.Release(slot)
	other, found := resume(t, s, Version{Model: "m", Run: 1, Version: 2}, content)
	third, more := resume(t, s, Version{Model: "m", Run: 1, Version: 3}, content)
	if found.Nbytes+more.Nbytes != 0 {
		t.Errorf("found %+v, %+v", found, more)
	}
	writeAll(s, other)
	writeAll(s, third)
	w, _ := reader.Find("w")
	for k, b := range reader.Bytes(w) {
		if b != value(0, w.Offset+int64(k)) {
			t.Fatal("a reader's bytes were written over")
		}
	}
}

// TestRandomRegionsAreCountedAsADumbModelDoes cuts a file into random strided regions, brings some of them, crashes, and
// compares what the next life has with a map of all bytes.
func TestRandomRegionsAreCountedAsADumbModelDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		cfg := large(t)
		s := mustOpen(t, cfg)
		slot, _ := resume(t, s, one, content)
		var regions []Region
		for k, off := range s.files[0].offsets {
			regions = append(regions, shatter(rng, off, s.files[0].sizes[k])...)
		}
		rng.Shuffle(len(regions), func(i, j int) { regions[i], regions[j] = regions[j], regions[i] })
		came := make([]bool, s.files[0].nbytes)
		for _, r := range regions[:rng.IntN(len(regions)+1)] {
			write(slot, 0, r)
			r.each(func(lo, hi int64) bool {
				for k := lo; k < hi; k++ {
					came[k] = true
				}
				return true
			})
		}
		die(t, s)
		again := mustOpen(t, cfg)
		slot, found := resume(t, again, one, content)
		var want int64
		for k := range slot.ledgers[0].sums {
			lo, hi := again.files[0].block(k)
			whole := true
			for b := lo; b < hi; b++ {
				whole = whole && (came[b] || !inTensor(again.files[0], b))
			}
			if whole != slot.ledgers[0].whole(k) {
				t.Fatalf("seed %d: block %d is whole: %t, want %t", seed, k, !whole, whole)
			}
			if whole {
				want += int64(slot.ledgers[0].expect[k])
			}
		}
		if found.Nbytes != want || len(found.Damaged) != 0 {
			t.Fatalf("seed %d: found %+v, want %d bytes", seed, found, want)
		}
	}
}

func inTensor(f *file, at int64) bool {
	for i, off := range f.offsets {
		if at >= off && at < off+f.sizes[i] {
			return true
		}
	}
	return false
}

// shatter covers [off, off+nbytes) exactly once: with stripes of a matrix, or with plain runs.
func shatter(rng *rand.Rand, off, nbytes int64) (regions []Region) {
	if row := int64(1000); nbytes > 0 && nbytes%row == 0 && rng.IntN(2) == 0 {
		for at := int64(0); at < row; {
			run := min(row-at, 1+rng.Int64N(400))
			regions = append(regions, Region{Off: off + at, Run: run, Shape: []int64{nbytes / row}, Stride: []int64{row}})
			at += run
		}
		return regions
	}
	for at := int64(0); at < nbytes; {
		run := min(nbytes-at, 1+rng.Int64N(100_000))
		regions = append(regions, Region{Off: off + at, Run: run})
		at += run
	}
	return regions
}

func TestRunsAreMergedWhereTheyTouch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r    Region
		want [][2]int64
	}{
		"a run":           {Region{Off: 3, Run: 5}, [][2]int64{{3, 8}}},
		"rows that touch": {Region{Off: 3, Run: 5, Shape: []int64{4}, Stride: []int64{5}}, [][2]int64{{3, 23}}},
		"rows":            {Region{Off: 0, Run: 2, Shape: []int64{2, 3}, Stride: []int64{100, 2}}, [][2]int64{{0, 6}, {100, 106}}},
		"one row":         {Region{Off: 0, Run: 2, Shape: []int64{1}, Stride: []int64{0}}, [][2]int64{{0, 2}}},
		"nothing":         {Region{Off: 0, Run: 0, Shape: []int64{3}, Stride: []int64{9}}, nil},
		"no rows":         {Region{Off: 0, Run: 4, Shape: []int64{0}, Stride: []int64{9}}, nil},
	} {
		var got [][2]int64
		c.r.each(func(lo, hi int64) bool { got = append(got, [2]int64{lo, hi}); return true })
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
}

func BenchmarkCame(b *testing.B) {
	const nbytes = 64 << 20
	s, err := Open(Config{Root: filepath.Join(b.TempDir(), "arenas"), Ranks: []Rank{{Rank: 0, Tensors: []safetensors.Spec{{Name: "w", DType: "U8", Shape: []int64{nbytes}}}}}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	source := bytes.Repeat([]byte{1}, 16<<20)
	for name, r := range map[string]Region{
		"whole":      {Run: 16 << 20},
		"rows of 1K": {Run: 1 << 10, Shape: []int64{16 << 10}, Stride: []int64{1 << 10}},
	} {
		if name != "whole" {
			r.Stride[0]++ // not merged
			r.Shape[0] -= 16
		}
		for _, counted := range []bool{false, true} {
			b.Run(name+map[bool]string{false: ", copied", true: ", copied and noted"}[counted], func(b *testing.B) {
				b.SetBytes(16 << 20)
				slot, _, err := s.Resume(Version{Model: "m", Run: uint64(b.N), Version: 1}, Content{}, 1)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Release(slot)
				for i := 0; b.Loop(); i++ {
					r.Off = s.files[0].offsets[0] + int64(i%3)*(16<<20)
					if i%3 == 0 {
						clear(slot.ledgers[0].label[:])
						_ = slot.begin(Version{Model: "m", Run: uint64(i), Version: 2}, Content{})
					}
					copy(slot.Memory(0).Bytes()[r.Off:], source)
					if counted {
						slot.Came(0, r)
					}
				}
			})
		}
	}
}

// Engines read every safetensors file of a folder: the lists beside them have another ending.
func TestEnginesFindOnlySafetensors(t *testing.T) {
	t.Parallel()
	dir := staged(t, large(t), false)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "rank-0.blocks rank-0.safetensors rank-2.blocks rank-2.safetensors" {
		t.Errorf("a slot has %s", got)
	}
}

// TestADamagedHeaderIsWrittenAnew: the tensors are as they were, so nothing is missing but the header.
func TestADamagedHeaderIsWrittenAnew(t *testing.T) {
	t.Parallel()
	cfg := large(t)
	path := filepath.Join(staged(t, cfg, false), "rank-0.safetensors")
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, bytes.Replace(b, []byte(`"w"`), []byte(`"u"`), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, cfg)
	slot, found := resume(t, s, one, content)
	if found.Whole || found.Nbytes != tensorBytes(s) || len(found.Damaged) != 1 || !strings.Contains(found.Damaged[0], "header") {
		t.Fatalf("found %+v", found)
	}
	if err := s.Seal(slot, one); err != nil {
		t.Fatal(err)
	}
	flip(t, s, slot)
	if _, there := readCurrent(t, s, "rank-0.safetensors").Find("w"); !there {
		t.Error("the header was not written anew")
	}
}

// TestFilesOfAnotherRecipeAreNotTakenOver: the same tensors of the same version, made otherwise.
func TestFilesOfAnotherRecipeAreNotTakenOver(t *testing.T) {
	t.Parallel()
	for _, flipped := range []bool{false, true} {
		cfg := large(t)
		_ = staged(t, cfg, flipped)
		cfg.Ranks[1].Recipe = "another"
		s := mustOpen(t, cfg)
		if slot, found := resume(t, s, one, content); found.Nbytes != 0 || found.Whole || !slot.Holds().IsZero() {
			t.Errorf("flipped %t: found %+v in a slot that holds %+v", flipped, found, slot.Holds())
		}
		if s.Serving() != nil {
			t.Error("what another recipe made serves by more than its name")
		}
	}
}

// TestANormalEndKeepsWhatACrashWouldKeep closes a set with a version that serves, one that served before, and one that
// was staged, in part or whole.
func TestANormalEndKeepsWhatACrashWouldKeep(t *testing.T) {
	t.Parallel()
	two := Version{Model: "m", Run: 1, Version: 2}
	for name, whole := range map[string]bool{"staged": true, "in part": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := large(t)
			staged(t, cfg, true)
			s := mustOpen(t, cfg)
			slot, _ := resume(t, s, two, content)
			if whole {
				writeAll(s, slot)
				if err := s.Seal(slot, two); err != nil {
					t.Fatal(err)
				}
			} else {
				write(slot, 0, wholeFile(s, 0)[0])
				s.Release(slot) // the stage was cut off
			}
			mustClose(t, s)

			again := mustOpen(t, cfg)
			if got := again.Serving(); got == nil || got.Holds() != one {
				t.Fatalf("another version serves: %+v", got)
			}
			next, found := resume(t, again, two, content)
			lo, hi := again.files[0].block(2) // within w, which lies behind v
			if found.Whole != whole || !next.Has(0, Region{Off: lo, Run: hi - lo}) || len(found.Damaged) > 0 {
				t.Errorf("found %+v", found)
			}
		})
	}
}

// TestANormalEndLeavesNothingElse: what served before, and a slot that holds nothing, are removed; also by a later life,
// which finds them there after a crash.
func TestANormalEndLeavesNothingElse(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]bool{"at once": false, "after a crash": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := large(t)
			s := mustOpen(t, cfg)
			for v := range uint64(2) {
				version := Version{Model: "m", Run: 1, Version: v + 1}
				slot, _ := resume(t, s, version, content)
				writeAll(s, slot)
				if err := s.Seal(slot, version); err != nil {
					t.Fatal(err)
				}
				flip(t, s, slot)
			}
			serving := s.Serving().Dir()
			if crash {
				die(t, s)
				s = mustOpen(t, cfg)
				if u := s.Usage()["retained"]; u.Slots != 1 {
					t.Errorf("what served before is not told from what is staged: %+v", s.Usage())
				}
			}
			mustClose(t, s)
			dirs, err := filepath.Glob(filepath.Join(cfg.Root, "slot-*"))
			if err != nil || len(dirs) != 1 || dirs[0] != serving {
				t.Errorf("left are %v, serving is %s: %v", dirs, serving, err)
			}
		})
	}
}

func mustClose(t *testing.T, s *Set) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
