package safetensors

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.safetensors")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpen(t *testing.T) {
	t.Parallel()
	text := `{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"I16","shape":[],"data_offsets":[3,5]},"z":{"dtype":"F32","shape":[0],"data_offsets":[5,5]}}`
	content := fileOf(text, 5)
	path := write(t, content)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Path() != path {
		t.Errorf("path %s", f.Path())
	}
	for name, want := range map[string][]byte{"a": {0, 1, 2}, "b": {3, 4}, "z": {}} {
		tensor, ok := f.Find(name)
		if got := f.Bytes(tensor); !ok || !bytes.Equal(got, want) || cap(got) != len(want) {
			t.Errorf("%s: %v %v, want %v", name, ok, got, want)
		}
	}
	if _, ok := f.Find("c"); ok {
		t.Error("found c")
	}
	whole, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil || !bytes.Equal(whole, content) {
		t.Errorf("read back %q, %v", whole, err)
	}
	if _, err := f.ReadAt(whole, -1); err == nil {
		t.Error("negative offset: no error")
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("directory: no error")
	}
	if _, err := Open(write(t, nil)); !errors.Is(err, ErrTruncated) {
		t.Errorf("empty file: %v", err)
	}
	if _, err := Open(write(t, fileOf(`{`, 0))); !errors.Is(err, ErrJSON) {
		t.Errorf("bad header: %v", err)
	}
}

// TestOpenDoesNotWaitForAPipe: a file of another kind is refused at once.
func TestOpenDoesNotWaitForAPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe.safetensors")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := Open(path)
		refused <- err
	}()
	select {
	case err := <-refused:
		if err == nil || !strings.Contains(err.Error(), "regular file") {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still waiting for somebody to write")
	}
}
