package rdma_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

const page = 4096

func alloc(t *testing.T, nbytes int64, o rdma.AllocOptions) *rdma.Memory {
	t.Helper()
	m, err := rdma.Alloc(nbytes, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestAllocGivesZeroedWritableMemoryOfTheLengthAsked(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rdma.AllocOptions{
		"memfd":     {},
		"lazy":      {Lazy: true},
		"file":      {Backing: rdma.File, Path: filepath.Join(t.TempDir(), "a")},
		"anonymous": {Backing: rdma.Anonymous},
		"huge":      {HugePages: true, Backing: rdma.Anonymous},
	} {
		for _, n := range []int64{1, page, 3*page + 5} {
			m := alloc(t, n, o)
			if m.Len() != n || int64(len(m.Bytes())) != n || m.Addr() == 0 || m.Backing() != o.Backing {
				t.Errorf("%s: %d bytes of %d at %#x, %v", name, len(m.Bytes()), m.Len(), m.Addr(), m.Backing())
			}
			if !bytes.Equal(m.Bytes(), make([]byte, n)) {
				t.Errorf("%s: memory isn't zeroed", name)
			}
			m.Bytes()[n-1] = 1
			if o.Path != "" {
				if err := os.Remove(o.Path); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestAllocRefuses(t *testing.T) {
	t.Parallel()
	exists := filepath.Join(t.TempDir(), "exists")
	if err := os.WriteFile(exists, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		n    int64
		o    rdma.AllocOptions
		want error
	}{
		"no bytes":           {0, rdma.AllocOptions{}, nil},
		"negative":           {-5, rdma.AllocOptions{}, nil},
		"foreign":            {10, rdma.AllocOptions{Backing: rdma.Foreign}, nil},
		"file without path":  {10, rdma.AllocOptions{Backing: rdma.File}, nil},
		"path without file":  {10, rdma.AllocOptions{Path: "x"}, nil},
		"existing file":      {10, rdma.AllocOptions{Backing: rdma.File, Path: exists}, os.ErrExist},
		"missing folder":     {10, rdma.AllocOptions{Backing: rdma.File, Path: exists + "/x"}, unix.ENOTDIR},
		"more than there is": {1 << 50, rdma.AllocOptions{}, unix.ENOMEM},
	} {
		m, err := rdma.Alloc(c.n, c.o)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if b, err := os.ReadFile(exists); err != nil || string(b) != "x" {
		t.Errorf("the existing file is %q, %v", b, err)
	}
}

// A full file system is an error that says how much is missing, and leaves no file.
func TestAllocOnFullFileSystem(t *testing.T) {
	t.Parallel()
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Blocks == 0 {
		t.Skipf("no bounded /dev/shm: %v", err)
	}
	path := filepath.Join("/dev/shm", "drydock-test-"+rdma.NewIncarnation())
	need := int64(st.Blocks)*st.Bsize + 1<<30
	_, err := rdma.Alloc(need, rdma.AllocOptions{Backing: rdma.File, Path: path})
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "missing") || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left behind: %v", err)
	}
}

func TestMemfdCannotShrinkUnderItsReaders(t *testing.T) {
	t.Parallel()
	m := alloc(t, page, rdma.AllocOptions{})
	if err := unix.Ftruncate(m.FD(), 0); err == nil {
		t.Fatal("a sealed memfd was truncated")
	}
	if dev, ino := m.Inode(); dev == 0 || ino == 0 {
		t.Fatalf("inode %d:%d", dev, ino)
	}
}

func TestMapFileAdoptsWhatIsThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "arena")
	a := alloc(t, 5000, rdma.AllocOptions{Backing: rdma.File, Path: path})
	copy(a.Bytes()[4090:], "across a page")
	for _, o := range []rdma.MapOptions{{}, {Lazy: true}, {Writable: true}} {
		m, err := rdma.MapFile(path, o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		if !bytes.Equal(m.Bytes(), a.Bytes()) || m.Path() != path {
			t.Errorf("%+v: other bytes, path %q", o, m.Path())
		}
		if o.Writable {
			m.Bytes()[0] = 7
			if a.Bytes()[0] != 7 {
				t.Error("a write is not seen by the other mapping")
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, filepath.Dir(path), path + "-missing", "/dev/null"} {
		if m, err := rdma.MapFile(p, rdma.MapOptions{}); err == nil {
			t.Errorf("%s: mapped %d bytes", p, m.Len())
		}
	}
}

func TestCloseRefusesWhileHeld(t *testing.T) {
	t.Parallel()
	m := alloc(t, page, rdma.AllocOptions{})
	first, err := m.Hold()
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.Hold()
	if err != nil {
		t.Fatal(err)
	}
	first()
	first() // once is enough
	if err := m.Close(); !errors.Is(err, rdma.ErrBusy) || m.Holds() != 1 {
		t.Fatalf("close: %v with %d holds", err, m.Holds())
	}
	m.Bytes()[0] = 1
	second()
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Hold(); !errors.Is(err, rdma.ErrClosed) {
		t.Fatalf("hold after close: %v", err)
	}
}

func TestForeignMemory(t *testing.T) {
	t.Parallel()
	m, err := rdma.ForeignMemory(0x7f0000000000, 100, "cuda:1")
	if err != nil || m.Bytes() != nil || m.Len() != 100 || m.Device() != "cuda:1" {
		t.Fatalf("%+v, %v", m, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := rdma.ForeignMemory(0, 1, "cuda:0"); err == nil {
		t.Error("a nil address was accepted")
	}
}

// One hundred allocations leave no descriptor behind.
func TestDescriptorsStayFlat(t *testing.T) {
	before := openFiles(t)
	for range 100 {
		m, err := rdma.Alloc(page, rdma.AllocOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := openFiles(t); after > before+2 {
		t.Fatalf("%d descriptors before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

func BenchmarkAlloc(b *testing.B) {
	const n = 256 << 20
	for name, o := range map[string]rdma.AllocOptions{
		"memfd": {}, "anonymous": {Backing: rdma.Anonymous}, "anonymous huge": {Backing: rdma.Anonymous, HugePages: true},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				m, err := rdma.Alloc(n, o)
				if err != nil {
					b.Fatal(err)
				}
				if err := m.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
