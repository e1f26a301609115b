package rdma_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// pattern is content that a page in a wrong place would show in.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>12*31 + i*7)
	}
	return b
}

// folders are where arenas may lie: shared memory, which has huge pages where the kernel gives any, and a disk, which has none.
func folders(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"disk": t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "drydock-huge-"); err == nil { //nolint:usetesting // it must be shared memory
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		all["shared memory"] = dir
	}
	return all
}

// TestHugePagesChangeNeitherContentNorAddress writes a file through one mapping and adopts it on huge pages: the same bytes,
// seen by both, at an address that stays.
func TestHugePagesChangeNeitherContentNorAddress(t *testing.T) {
	t.Parallel()
	const n = 3*rdma.HugePageBytes + 12345 // neither huge pages nor small ones come out even
	for name, dir := range folders(t) {
		path := filepath.Join(dir, "arena")
		small, err := rdma.Alloc(n, rdma.AllocOptions{Backing: rdma.File, Path: path})
		if err != nil {
			t.Fatal(err)
		}
		want := pattern(n)
		copy(small.Bytes(), want)
		huge, err := rdma.MapFile(path, rdma.MapOptions{Writable: true, HugePages: true})
		if err != nil {
			t.Fatal(err)
		}
		if huge.Addr()%rdma.HugePageBytes != 0 || huge.Len() != n || len(huge.Bytes()) != n {
			t.Errorf("%s: %d bytes at %#x", name, huge.Len(), huge.Addr())
		}
		if !bytes.Equal(huge.Bytes(), want) || !bytes.Equal(small.Bytes(), want) {
			t.Errorf("%s: other bytes than before", name)
		}
		huge.Bytes()[n-1]++
		small.Bytes()[rdma.HugePageBytes]++
		if small.Bytes()[n-1] != want[n-1]+1 || huge.Bytes()[rdma.HugePageBytes] != want[rdma.HugePageBytes]+1 {
			t.Errorf("%s: the two mappings have different bytes", name)
		}
		got, err := huge.HugeBytes()
		if err != nil || got > n {
			t.Errorf("%s: %d of %d bytes on huge pages: %v", name, got, n, err)
		}
		t.Logf("%s: %d of %d bytes on huge pages", name, got, n)
		for _, m := range []*rdma.Memory{huge, small} {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestHugePagesAreAWish allocates every backing with and without them: it always succeeds, zeroed, whatever the kernel gives.
func TestHugePagesAreAWish(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rdma.AllocOptions{
		"memfd": {}, "anonymous": {Backing: rdma.Anonymous}, "lazy": {Lazy: true}, "file": {Backing: rdma.File, Path: filepath.Join(t.TempDir(), "f")},
	} {
		for _, n := range []int64{1, rdma.HugePageBytes, 2*rdma.HugePageBytes + 1} {
			o.HugePages = true
			m, err := rdma.Alloc(n, o)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m.Len() != n || !bytes.Equal(m.Bytes(), make([]byte, n)) {
				t.Errorf("%s: %d bytes, not zero", name, m.Len())
			}
			m.Bytes()[n-1] = 1
			if got, err := m.HugeBytes(); err != nil || got < 0 {
				t.Errorf("%s: %d bytes on huge pages: %v", name, got, err)
			}
			if err := m.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if o.Path != "" {
				_ = os.Remove(o.Path)
			}
		}
	}
}

// TestHugePagesAreGivenInSharedMemory holds where the kernel has MADV_COLLAPSE: no setting of the host's is needed.
func TestHugePagesAreGivenInSharedMemory(t *testing.T) {
	t.Parallel()
	dir := folders(t)["shared memory"]
	if dir == "" {
		t.Skip("no shared memory")
	}
	const n = 4 * rdma.HugePageBytes
	m, err := rdma.Alloc(n, rdma.AllocOptions{Backing: rdma.File, Path: filepath.Join(dir, "arena"), HugePages: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, err := m.HugeBytes()
	switch {
	case err != nil:
		t.Fatal(err)
	case got == 0:
		t.Skip("this kernel gives shared memory no huge pages")
	case got != n:
		t.Logf("only %d of %d bytes: the host's memory is in pieces", got, n)
	}
}
