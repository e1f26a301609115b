package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReadFileEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	small, pipe := filepath.Join(dir, "small"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(small, []byte("eight by"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path  string
		limit int64
		want  string
		err   string
	}{
		{small, 8, "eight by", ""},
		{small, 7, "", "8 bytes, at most 7"},
		{pipe, 8, "", ""}, // nobody writes to it
		{"/dev/zero", 8, "", "is a device"},
		{dir, 1 << 20, "", "is a directory"},
		{filepath.Join(dir, "none"), 8, "", "no such file"},
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			b, err := ReadFile(c.path, c.limit)
			if string(b) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %q, %v", c.path, b, err)
			}
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: still reading", c.path)
		}
	}
}

// TestReadFileReadsAPipe as the shell makes it for <(command).
func TestReadFileReadsAPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("nine bytes"[:9]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d", r.Fd())
	if b, err := ReadFile(path, 9); err != nil || string(b) != "nine byte" {
		t.Errorf("%q, %v", b, err)
	}
}
