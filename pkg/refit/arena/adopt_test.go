package arena

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// reopened flips to version 1 under one configuration, and opens the folder again under another.
func reopened(t *testing.T, change func(*Config)) *Set {
	t.Helper()
	cfg := config(t)
	s := mustOpen(t, cfg)
	flip(t, s, stage(t, s, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(&cfg)
	return mustOpen(t, cfg)
}

func TestWhatServesIsNotWrittenWhenParametersAreRenamed(t *testing.T) {
	t.Parallel()
	s := reopened(t, func(c *Config) {
		for i := range c.Ranks {
			c.Ranks[i].Tensors = append([]safetensors.Spec(nil), c.Ranks[i].Tensors...)
			c.Ranks[i].Tensors[0].Name = "v" // the same sizes, another layout
		}
	})
	slot := stage(t, s, 2)
	f := readCurrent(t, s, "rank-0.safetensors")
	if w, ok := f.Find("w"); !ok || f.Metadata[MetaVersion] != "1" || f.Bytes(w)[0] != 1 {
		t.Fatalf("what serves was written before the flip: labels %v", f.Metadata)
	}
	flip(t, s, slot)
	if dirs, err := filepath.Glob(filepath.Join(s.Root(), "slot-*")); err != nil || len(dirs) != slotCount {
		t.Fatalf("folders after the flip: %v, %v", dirs, err)
	}
}

func TestWhatServesIsKnownHoweverTheLinkIsSpelt(t *testing.T) {
	t.Parallel()
	s := reopened(t, func(c *Config) {
		link := filepath.Join(c.Root, "current")
		target, err := filepath.EvalSymlinks(link)
		if err == nil {
			err = errors.Join(os.Remove(link), os.Symlink(target, link)) // absolute now, as an operator may have made it
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	s.Release(stage(t, s, 2))
	if f := readCurrent(t, s, "rank-0.safetensors"); f.Metadata[MetaVersion] != "1" {
		t.Fatalf("what serves was written: labels %v", f.Metadata)
	}
}

func TestFilesOfRanksThatAreGoneAreNotLeftBeside(t *testing.T) {
	t.Parallel()
	s := reopened(t, func(c *Config) { c.Ranks = c.Ranks[:1] })
	readCurrent(t, s, "rank-1.safetensors")
	for v := uint64(2); v <= 4; v++ {
		flip(t, s, stage(t, s, v))
		if _, err := os.Stat(filepath.Join(s.Root(), "current", "rank-1.safetensors")); err == nil {
			t.Fatalf("version %d of rank 0 serves beside an older one of rank 1", v)
		}
	}
}

func TestASlotThatIsGoneIsNotFlippedTo(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	flip(t, s, stage(t, s, 1))
	quarantined := stage(t, s, 2)
	if err := s.Quarantine(quarantined); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Flip(quarantined); !errors.Is(err, ErrGone) {
		t.Fatalf("flip to a quarantined slot: %v", err)
	}
	staged := stage(t, s, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Flip(staged); !errors.Is(err, ErrGone) {
		t.Fatalf("flip after close: %v", err)
	}
	if _, err := acquire(s); !errors.Is(err, ErrGone) {
		t.Fatalf("acquire after close: %v", err)
	}
	if f := readCurrent(t, s, "rank-0.safetensors"); f.Metadata[MetaVersion] != "1" {
		t.Fatalf("serving %q", f.Metadata[MetaVersion])
	}
}

func TestQuarantineEndsWithTheTransfer(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	slot, err := acquire(s)
	if err != nil {
		t.Fatal(err)
	}
	release, err := slot.Memory(0).Hold()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Quarantine(slot); err != nil {
		t.Fatal(err)
	}
	s.Release(stage(t, s, 1))
	if slot.Memory(0).Bytes() == nil {
		t.Fatal("memory was unmapped under a transfer")
	}
	release()
	s.Release(stage(t, s, 2))
	if slot.Memory(0).Bytes() != nil {
		t.Fatal("memory stays mapped although the transfer has ended")
	}
}

func TestALongLabelNeverReachesTheTensors(t *testing.T) {
	t.Parallel()
	hostile := Version{Model: strings.Repeat("<", maxModel), Run: 1, Version: 1} // six bytes each in JSON
	name := strings.Repeat("n", 64)
	for pad := range 64 {
		cfg := Config{Root: filepath.Join(t.TempDir(), "a"), Ranks: []Rank{{Tensors: []safetensors.Spec{
			{Name: name[:pad+1], DType: "U8", Shape: []int64{8}},
		}, Alias: map[string]string{strings.Repeat("a", 48*pad+1): name[:pad+1]}}}}
		f, err := newFile(cfg.Ranks[0], 4096)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := f.headerFor(hostile); err == nil && int64(len(h)) != f.header {
			t.Fatalf("alias of %d bytes: a header of %d bytes, where tensors begin at %d", 48*pad+1, len(h), f.header)
		}
	}
}

func TestAFileSystemWithoutLeasesKnowsNobodyToBeGone(t *testing.T) {
	t.Parallel()
	dir, err := os.Open(t.TempDir()) // leases are for regular files: the kernel refuses, and not because of a reader
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	if leasable(int(dir.Fd())) {
		t.Fatal("what can't be asked for counts as unused")
	}
}
