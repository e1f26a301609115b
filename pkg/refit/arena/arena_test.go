package arena

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

func config(t *testing.T) Config {
	t.Helper()
	tensors := []safetensors.Spec{
		{Name: "w", DType: "BF16", Shape: []int64{3, 5}},
		{Name: "bias", DType: "F32", Shape: []int64{7}},
		{Name: "empty", DType: "F32", Shape: []int64{0, 4}},
	}
	return Config{Root: filepath.Join(t.TempDir(), "arenas"), Ranks: []Rank{
		{Rank: 0, Tensors: tensors, Alias: map[string]string{"tied": "w"}},
		{Rank: 1, Tensors: tensors[:2]},
	}}
}

func mustOpen(t *testing.T, cfg Config) *Set {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// acquire hands out a slot in which nothing is kept.
func acquire(s *Set) (*Slot, error) {
	slot, _, err := s.Resume(Version{Model: "m", Run: 9}, Content{}, 1)
	return slot, err
}

// stage fills a slot's tensors with one byte value and seals it.
func stage(t *testing.T, s *Set, version uint64) *Slot {
	t.Helper()
	slot, err := acquire(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.files {
		b := slot.Memory(i).Bytes()[s.files[i].header:]
		copy(b, bytes.Repeat([]byte{byte(version)}, len(b)))
	}
	if err := s.Seal(slot, Version{Model: "m", Run: 1, Version: version}); err != nil {
		t.Fatal(err)
	}
	return slot
}

func flip(t *testing.T, s *Set, slot *Slot) {
	t.Helper()
	if _, err := s.Flip(slot); err != nil {
		t.Fatal(err)
	}
}

func readCurrent(t *testing.T, s *Set, rank string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(s.Root(), "current", rank))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestFlipShowsTheSealedVersionOfAllRanks(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	for v := uint64(1); v <= 5; v++ {
		flip(t, s, stage(t, s, v))
		for _, name := range []string{"rank-0.safetensors", "rank-1.safetensors"} {
			f := readCurrent(t, s, name)
			w, ok := f.Find("w")
			if !ok || !bytes.Equal(f.Bytes(w), bytes.Repeat([]byte{byte(v)}, 30)) {
				t.Fatalf("version %d, %s: w is %v", v, name, f.Bytes(w))
			}
			if got := f.Metadata[MetaVersion]; got != string('0'+byte(v)) {
				t.Fatalf("version %d, %s: labelled %q", v, name, got)
			}
			_ = f.Close()
		}
	}
	if f := readCurrent(t, s, "rank-0.safetensors"); f.Metadata[MetaAlias] != `{"tied":"w"}` {
		t.Fatalf("alias in the header is %q", f.Metadata[MetaAlias])
	}
}

func TestOffsetsDoNotDependOnTheVersion(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	for _, v := range []uint64{1, 1<<64 - 1} {
		slot := stage(t, s, v)
		for i, f := range s.files {
			b := slot.Memory(i).Bytes()
			if got := int64(binary.LittleEndian.Uint64(b)) + lengthBytes; got != f.header {
				t.Fatalf("version %d, rank %d: header of %d bytes, want %d", v, i, got, f.header)
			}
		}
		s.Release(slot)
	}
}

func TestAReaderKeepsItsBytes(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	flip(t, s, stage(t, s, 1))
	reader := readCurrent(t, s, "rank-0.safetensors")
	w, _ := reader.Find("w")
	for v := uint64(2); v <= 6; v++ {
		flip(t, s, stage(t, s, v))
	}
	if got := reader.Bytes(w)[0]; got != 1 {
		t.Fatalf("a reader of version 1 now sees version %d", got)
	}
	if n := len(s.Names()); n != 2 {
		t.Fatalf("%d slots after the reader's slot was left to it, want 2", n)
	}
}

func TestStagingNeverTouchesWhatServes(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	flip(t, s, stage(t, s, 1))
	slot := stage(t, s, 2)
	if _, err := acquire(s); !errors.Is(err, ErrNoSlot) {
		t.Fatalf("a third slot: %v", err)
	}
	if f := readCurrent(t, s, "rank-0.safetensors"); f.Metadata[MetaVersion] != "1" {
		t.Fatalf("serving %q before the flip", f.Metadata[MetaVersion])
	}
	s.Release(slot)
	if _, err := acquire(s); err != nil {
		t.Fatalf("after release: %v", err)
	}
}

func TestUnsealedSlotIsInvalidAndNeverServes(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	s.Release(stage(t, s, 1))
	slot, err := acquire(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := safetensors.Open(slot.Path(0)); err == nil {
		t.Fatal("a slot that is staged into opens as a safetensors file")
	}
	if _, err := s.Flip(slot); err == nil {
		t.Fatal("flipped to a slot that was not sealed")
	}
}

func TestRestartAdoptsWhatServes(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := mustOpen(t, cfg)
	flip(t, s, stage(t, s, 7))
	if _, err := Open(cfg); !errors.Is(err, ErrOwned) {
		t.Fatalf("a second owner: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, cfg)
	if got := again.Serving(); got == nil || got.Holds() != (Version{"m", 1, 7}) {
		t.Fatalf("after a restart: %+v", got)
	}
	flip(t, again, stage(t, again, 8))
}

func TestRestartWithAnotherLayoutServesTheOldUntilTheFlip(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := mustOpen(t, cfg)
	flip(t, s, stage(t, s, 7))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Ranks[0].Tensors = append(cfg.Ranks[0].Tensors, safetensors.Spec{Name: "new", DType: "F32", Shape: []int64{100}})
	again := mustOpen(t, cfg)
	if again.Serving() != nil {
		t.Fatal("a file of another layout was adopted")
	}
	if f := readCurrent(t, again, "rank-0.safetensors"); f.Metadata[MetaVersion] != "7" {
		t.Fatal("the old version stopped serving before the flip")
	}
	flip(t, again, stage(t, again, 8))
	dirs, err := filepath.Glob(filepath.Join(cfg.Root, "slot-*"))
	if err != nil || len(dirs) != 2 {
		t.Fatalf("folders after the flip: %v, %v; want two", dirs, err)
	}
}

func TestNoRoomIsSaidBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	var st unix.Statfs_t
	root := filepath.Join(t.TempDir(), "a")
	if err := unix.Statfs(filepath.Dir(root), &st); err != nil {
		t.Fatal(err)
	}
	free := int64(st.Bavail) * st.Bsize
	_, err := Open(Config{Root: root, Ranks: []Rank{{Tensors: []safetensors.Spec{{Name: "w", DType: "U8", Shape: []int64{free}}}}}})
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "are missing") {
		t.Fatalf("got %v", err)
	}
	if dirs, _ := filepath.Glob(filepath.Join(root, "slot-*")); len(dirs) != 0 {
		t.Fatalf("left behind: %v", dirs)
	}
}

func TestQuarantinedSlotIsNeverUsedAgain(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	slot, err := acquire(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Quarantine(slot); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		other := stage(t, s, 1)
		if other == slot {
			t.Fatal("a quarantined slot was handed out")
		}
		s.Release(other)
	}
	if err := slot.unmap(); err != nil {
		t.Fatal(err)
	}
}

func TestWrongConfigurations(t *testing.T) {
	t.Parallel()
	tensors := []safetensors.Spec{{Name: "w", DType: "F32", Shape: []int64{1}}}
	for name, cfg := range map[string]Config{
		"no root":       {Ranks: []Rank{{Tensors: tensors}}},
		"no ranks":      {Root: t.TempDir()},
		"rank twice":    {Root: t.TempDir(), Ranks: []Rank{{Tensors: tensors}, {Tensors: tensors}}},
		"negative rank": {Root: t.TempDir(), Ranks: []Rank{{Rank: -1, Tensors: tensors}}},
		"unknown dtype": {Root: t.TempDir(), Ranks: []Rank{{Tensors: []safetensors.Spec{{Name: "w", DType: "F33", Shape: []int64{1}}}}}},
		"one slot":      {Root: t.TempDir(), Slots: 1, Ranks: []Rank{{Tensors: tensors}}},
		"not a folder":  {Root: os.DevNull, Ranks: []Rank{{Tensors: tensors}}},
	} {
		if s, err := Open(cfg); err == nil {
			_ = s.Close()
			t.Errorf("%s: opened", name)
		}
	}
}
