package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

// Where it can't work it says so, and why, and tcp takes over.
func TestUnavailableTellsWhy(t *testing.T) {
	t.Parallel()
	p := newPair(t, rdma.Memfd)
	m := rdmatest.Alloc(t, 4096, 1)
	reg := rdmatest.Register(t, p.Source, m)
	t.Cleanup(func() { _ = errors.Join(p.Source.Close(), p.Reader.Close()) })
	for name, c := range map[string]struct {
		edit func(*rdma.Remote, *access)
		kind rdma.Kind
		text string
	}{
		"another host":      {func(r *rdma.Remote, _ *access) { r.Host = "b" }, rdma.ErrUnavailable, "host b"},
		"another namespace": {func(_ *rdma.Remote, a *access) { a.PidNS++ }, rdma.ErrUnavailable, "pid namespace"},
		"no such process":   {func(_ *rdma.Remote, a *access) { a.PID = 1 << 22 }, rdma.ErrUnreachable, "process"},
		"process zero":      {func(_ *rdma.Remote, a *access) { a.PID = 0 }, rdma.ErrRefused, "process 0"},
		"its number reused": {func(_ *rdma.Remote, a *access) { a.Start-- }, rdma.ErrStale, "another one"},
		"descriptor reused": {func(_ *rdma.Remote, a *access) { a.Control.Ino++ }, rdma.ErrStale, "another file"},
		"other file":        {func(_ *rdma.Remote, a *access) { a.Control = a.Regions[0].File }, rdma.ErrStale, "control page"},
		"moved region":      {func(_ *rdma.Remote, a *access) { a.Regions[0].Base++ }, rdma.ErrRefused, "region 0"},
	} {
		r := rdmatest.RemoteOf(t, p, reg)
		a, err := decodeAccess(r.Access.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		c.edit(&r, &a)
		r.Access.Metadata = a.encode()
		_, err = p.Reader.Connect(t.Context(), r)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.kind, c.text)
		}
	}
}

func TestErrorsOfOpenSayWhatToDoNext(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]rdma.Kind{
		unix.EACCES: rdma.ErrUnavailable, unix.EPERM: rdma.ErrUnavailable, unix.ESRCH: rdma.ErrUnreachable, unix.ENOENT: rdma.ErrStale,
	} {
		if got := openError(&os.PathError{Op: "open", Path: "x", Err: err}); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// A file that is shortened while it is mapped fails the read; the process lives on.
func TestTruncatedFileFailsTheReadAndNotTheProcess(t *testing.T) {
	t.Parallel()
	const nbytes = 8 << 20
	p := newPair(t, rdma.File)
	path := filepath.Join(t.TempDir(), "arena")
	m := rdmatest.AllocAs(t, nbytes, 1, rdma.AllocOptions{Backing: rdma.File, Path: path})
	reg := rdmatest.Register(t, p.Source, m)
	dst := rdmatest.Alloc(t, nbytes, 2)
	t.Cleanup(func() { _ = errors.Join(p.Source.Close(), p.Reader.Close()) })
	peer := rdmatest.Connect(t, p.Reader, rdmatest.RemoteOf(t, p, reg))
	all := []rdma.Segment{rdma.Contiguous(0, 0, 0, nbytes)}
	if err := rdmatest.Read(peer, dst, all); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, nbytes/2); err != nil {
		t.Fatal(err)
	}
	if err := rdmatest.Read(peer, dst, all); !errors.Is(err, rdma.ErrReset) || !errors.Is(err, errFault) {
		t.Fatalf("read: %v", err)
	}
	if err := rdmatest.Read(peer, dst, []rdma.Segment{rdma.Contiguous(0, 0, 0, nbytes/2)}); err != nil {
		t.Fatalf("what is left of the file: %v", err)
	}
}

func TestGuardLetsOtherPanicsPass(t *testing.T) {
	t.Parallel()
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("recovered %v", r)
		}
	}()
	_ = guarded(func() { panic("other") })
}

func TestFallsBackToTheNextTransport(t *testing.T) {
	t.Parallel()
	p := newPair(t, rdma.Memfd)
	r := rdmatest.RemoteOf(t, p)
	r.Host = "elsewhere"
	_, choice, err := rdma.Connect(t.Context(), []rdma.Transport{p.Reader}, rdma.Offer{Remote: r, Accesses: []rdma.Access{r.Access}})
	if !errors.Is(err, rdma.ErrUnavailable) || len(choice.Skipped) != 1 || !strings.Contains(choice.String(), "elsewhere") {
		t.Fatalf("%v, %v", choice, err)
	}
}

func FuzzDecodeAccess(f *testing.F) {
	a := access{PID: 1, Regions: []regionAccess{{Nbytes: 5}}}
	f.Add(a.encode())
	f.Add([]byte{accessVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAccess(b)
		if err == nil && !bytes.Equal(a.encode(), b) {
			t.Fatalf("%x decodes to %+v, which encodes otherwise", b, a)
		}
	})
}
