package sidecar

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func anIdentity() identity {
	return identity{Model: "org/m", Rank: 3, World: 4, Job: "j", Layout: "l", Nbytes: 2 * pageBytes, Slots: 2}
}

// open opens files that end with the test.
func open(t *testing.T, root string, id identity) *files {
	t.Helper()
	f, err := openFiles(root, id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.close(false) })
	return f
}

// TestFilesAreAdoptedOnlyWhenTheyAreTheSame reopens a folder after something in it, or in what is asked for, has changed.
func TestFilesAreAdoptedOnlyWhenTheyAreTheSame(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*identity, string)
		adopted bool
	}{
		"nothing":   {func(*identity, string) {}, true},
		"job":       {func(id *identity, _ string) { id.Job = "k" }, false},
		"layout":    {func(id *identity, _ string) { id.Layout = "k" }, false},
		"world":     {func(id *identity, _ string) { id.World = 5 }, false},
		"slots":     {func(id *identity, _ string) { id.Slots = 3 }, false},
		"slot gone": {func(_ *identity, slot string) { _ = os.Remove(slot) }, false},
		"slot cut":  {func(_ *identity, slot string) { _ = os.Truncate(slot, 5) }, false},
		"half made": {func(_ *identity, slot string) { _ = os.Remove(filepath.Join(filepath.Dir(slot), "arena.json")) }, false},
		"garbage": {func(_ *identity, slot string) {
			_ = os.WriteFile(filepath.Join(filepath.Dir(slot), "arena.json"), []byte("{"), 0o600)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, id := t.TempDir(), anIdentity()
			first := open(t, root, id)
			first.slots[0].Bytes()[0] = 7
			slot := first.paths()[0]
			if err := first.close(false); err != nil {
				t.Fatal(err)
			}
			c.change(&id, slot)
			second := open(t, root, id)
			if second.adopted != c.adopted || (second.slots[0].Bytes()[0] == 7) != c.adopted {
				t.Errorf("adopted %t, first byte %d", second.adopted, second.slots[0].Bytes()[0])
			}
			if !c.adopted && name != "half made" && name != "garbage" && second.generation <= first.generation {
				t.Errorf("generation %d after %d", second.generation, first.generation)
			}
			found, err := filepath.Glob(filepath.Join(second.dir, "slot-*"))
			if err != nil || len(found) != id.Slots {
				t.Errorf("%d slot files of %d are left: %v", len(found), id.Slots, err)
			}
		})
	}
}

func TestFilesHaveOneOwner(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := open(t, root, anIdentity())
	_, err := openFiles(root, anIdentity(), time.Now())
	if e := coded(err); e == nil || e.Code != ArenaBusy {
		t.Errorf("files were opened twice: %v", err)
	}
	if err := removeLeft(f.dir); err != nil {
		t.Error(err)
	}
	if found, err := left(root, "org/m"); err != nil || found[3] != f.dir {
		t.Errorf("files that are served were removed as left over: %v, %v", found, err)
	}
	if err := f.close(false); err != nil {
		t.Fatal(err)
	}
	if found, err := left(root, "another"); err != nil || len(found) != 0 {
		t.Errorf("found %v of another model, error %v", found, err)
	}
	if err := errors.Join(removeLeft(f.dir), removeLeft(f.dir)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.dir); !os.IsNotExist(err) {
		t.Errorf("left over: %v", err)
	}
}

// TestListen takes over the socket of a dead process and not that of a living one.
func TestListen(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "sc") //nolint:usetesting // sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "s")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := Listen(at); err == nil {
		t.Error("two processes serve one socket")
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := Listen(filepath.Join(dir, string(make([]byte, 200)))); err == nil {
		t.Error("a name that is too long was accepted")
	}
}
