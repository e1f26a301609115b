package operator

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// receiver keeps arenas of two ranks in dir, serves version 1.1 and has 1.2 sealed.
func receiver(t *testing.T, dir, name string) *arena.Set {
	t.Helper()
	tensors := []safetensors.Spec{{Name: "w", DType: "BF16", Shape: []int64{8, 8}}}
	s, err := arena.Open(arena.Config{Root: filepath.Join(dir, name), Ranks: []arena.Rank{{Rank: 0, Tensors: tensors}, {Rank: 3, Tensors: tensors}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for v := range uint64(2) {
		slot, _, err := s.Resume(arena.Version{}, arena.Content{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			slot.Came(i, arena.Region{Off: s.Offsets(i)[0], Run: 8 * 8 * 2})
		}
		if err := s.Seal(slot, arena.Version{Model: "org/tiny", Run: 1, Version: v + 1}); err != nil {
			t.Fatal(err)
		}
		if v > 0 {
			continue
		}
		if _, err := s.Flip(slot); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func arenas(t *testing.T, dir string) *ArenaList {
	t.Helper()
	l, err := Arenas(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestArenasOfALivingReceiver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	receiver(t, dir, "receiver-0")
	write(t, filepath.Join(dir, "else", "slot-1", "rank-0.safetensors"), "no receiver's: it has no lock")
	l := arenas(t, dir)
	if l.Problems() != 0 || len(l.Arenas) != 4 {
		t.Fatalf("got %+v", l)
	}
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "arenas.txt", b.Bytes())
	for _, r := range l.Arenas {
		if r.Owner != "alive" || len(r.Readers) != 0 || r.InUse {
			t.Errorf("this process is the owner, not a reader: %+v", r)
		}
	}
	if removed, err := RemoveOrphans(dir); err != nil || len(removed) != 0 {
		t.Errorf("removed %v of a living receiver, %v", removed, err)
	}
}

// TestOrphans: a receiver that was killed leaves both slots; only the one that serves stays.
func TestOrphans(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := receiver(t, dir, "receiver-0").Root()
	copied := t.TempDir() // another folder with the same files: nobody holds its lock
	if err := os.CopyFS(filepath.Join(copied, "receiver-0"), os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	l := arenas(t, copied)
	if len(l.Arenas) != 4 || slices.ContainsFunc(l.Arenas, func(r ArenaRow) bool { return r.Owner != "gone" || r.InUse }) {
		t.Fatalf("got %+v", l)
	}
	reader, err := safetensors.Open(l.Arenas[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if r := arenas(t, copied).Arenas[0]; len(r.Readers) != 1 || !strings.Contains(r.Readers[0], "[") {
		t.Errorf("a reader is not seen: %+v", r)
	}
	for _, want := range []int{1, 0} {
		removed, err := RemoveOrphans(copied)
		if err != nil || len(removed) != want || want > 0 && removed[0].Nbytes == 0 {
			t.Errorf("removed %v, %v", removed, err)
		}
	}
	l = arenas(t, copied)
	if len(l.Arenas) != 2 || l.Arenas[0].State != "serving" || l.Arenas[1].State != "serving" || l.Arenas[0].Version != "1.1" {
		t.Errorf("left are %+v", l.Arenas)
	}
}

func TestBrokenArenasAreFound(t *testing.T) {
	t.Parallel()
	root := receiver(t, t.TempDir(), "receiver-0").Root()
	good := arenas(t, filepath.Dir(root)).Arenas
	read := func(state string, rank int) []byte {
		i := slices.IndexFunc(good, func(r ArenaRow) bool { return r.State == state && r.Rank == rank })
		b, err := os.ReadFile(good[i].Path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	wiped := func(b []byte) []byte { return append(make([]byte, 8), b[8:]...) }
	for name, c := range map[string]struct {
		state   string // and rank of the file that is replaced
		rank    int
		content []byte
		problem string
	}{
		"staged into":     {"sealed", 3, wiped(read("sealed", 3)), ""},
		"all the same":    {"sealed", 3, read("sealed", 3), ""},
		"serves nothing":  {"serving", 0, wiped(read("serving", 0)), "header"},
		"cut short":       {"sealed", 0, read("sealed", 0)[:4100], "truncated"},
		"another version": {"sealed", 3, read("serving", 3), "holds 1.1 of"},
		"another rank":    {"serving", 3, read("serving", 0), `rank "0"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(filepath.Join(dir, "receiver-0"), os.DirFS(root)); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(good, func(r ArenaRow) bool { return r.State == c.state && r.Rank == c.rank })
			path := filepath.Join(dir, strings.TrimPrefix(good[i].Path, filepath.Dir(root)))
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			l := arenas(t, dir)
			if got := l.Arenas[i].Problem; (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) || l.Problems() > 1 {
				t.Errorf("problem %q, want %q; %d in all", got, c.problem, l.Problems())
			}
		})
	}
}

func TestNoArenas(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"/nonexistent/arenas", t.TempDir()} {
		if l := arenas(t, dir); len(l.Arenas) != 0 {
			t.Errorf("%s: %+v", dir, l)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	if _, err := Arenas(file); err == nil {
		t.Error("listed a file")
	}
}

func TestDamageIsFoundByReading(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	receiver(t, dir, "receiver-0")
	l := arenas(t, dir)
	l.Verify()
	if l.Problems() != 0 || l.Arenas[0].Verified != 8*8*2 {
		t.Fatalf("got %+v", l)
	}
	f, err := os.OpenFile(l.Arenas[0].Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, l.Arenas[0].Nbytes-1); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	l = arenas(t, dir)
	if l.Verify(); l.Problems() != 1 || !strings.Contains(l.Arenas[0].Problem, "not as they were") {
		t.Errorf("got %+v", l)
	}
}

// TestWhatServesIsNoOrphanHoweverItsLinkIsSpelt: a link may have been made by hand, or by a tool that resolves it.
func TestWhatServesIsNoOrphanHoweverItsLinkIsSpelt(t *testing.T) {
	t.Parallel()
	for _, spelling := range []string{"slot-1", "./slot-1", "slot-1/", "%s/slot-1"} {
		dir := t.TempDir()
		root := filepath.Join(dir, "receiver-0")
		s := receiver(t, dir, "receiver-0")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		current := filepath.Join(root, "current")
		if err := os.Remove(current); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(strings.ReplaceAll(spelling, "%s", root), current); err != nil {
			t.Fatal(err)
		}
		removed, err := RemoveOrphans(dir) // slot-2 was staged, and waits for the receiver's next life
		if err != nil || len(removed) != 1 || filepath.Base(removed[0].Path) != "slot-2" {
			t.Errorf("%s: removed %v, %v", spelling, removed, err)
		}
		if l := arenas(t, dir); len(l.Arenas) != 2 || l.Arenas[0].State != "serving" {
			t.Errorf("%s: %+v", spelling, l.Arenas)
		}
	}
}
