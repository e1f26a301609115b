package arena

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckNeedsNothingButTheFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(staged(t, large(t), false), "rank-0.safetensors")
	nbytes, err := Check(path)
	if err != nil || nbytes != 512*1024*2+300*500*2 {
		t.Fatalf("%d bytes compared: %v", nbytes, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	shorten(t, strings.TrimSuffix(path, ".safetensors")+".blocks")
	if _, err := Check(path); !errors.Is(err, ErrNotNoted) || !strings.Contains(err.Error(), "the file does not") {
		t.Errorf("with a list of a block less: %v", err)
	}
	b[4096+blockBytes+5] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if nbytes, err := Check(path); err == nil || !strings.Contains(err.Error(), "bytes 266240 to 528384 are not") || nbytes != blockBytes {
		t.Errorf("%d bytes compared: %v", nbytes, err)
	}
	if err := os.Remove(strings.TrimSuffix(path, ".safetensors") + ".blocks"); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(path); !errors.Is(err, ErrNotNoted) {
		t.Errorf("without a list: %v", err)
	}
}

// TestAddressesAreStable refits without readers: each slot's memory stays where it was mapped, so that what is registered
// with a transport stays registered.
func TestAddressesAreStable(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, config(t))
	where := map[string]uint64{}
	for v := uint64(1); v <= 10; v++ {
		slot := stage(t, s, v)
		flip(t, s, slot)
		for i := range s.files {
			path, addr := slot.Path(i), slot.Memory(i).Addr()
			if before, seen := where[path]; seen && before != addr {
				t.Errorf("version %d: %s moved from %#x to %#x", v, path, before, addr)
			}
			where[path] = addr
		}
	}
	if len(where) != slotCount*len(s.files) {
		t.Errorf("%d files were used, want %d", len(where), slotCount*len(s.files))
	}
}

// shorten takes the last block out of a list.
func shorten(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Clone(b[:len(b)-8])
	binary.LittleEndian.PutUint64(b[48:], uint64(len(b)-ledgerHead)/8)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
