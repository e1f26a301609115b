package operator

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/cli"
)

var tiny = checkpoint.GenerateOptions{Seed: 1, Tiny: true}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// TestCheckpointIsMadeOnce: also in a folder that exists, as a mount point does, and after an interruption.
func TestCheckpointIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..generating.partial-1", "config.json"), "{}")
	write(t, filepath.Join(dir, ".generating", "config.json"), "{}")
	if made, err := MakeCheckpoint(t.Context(), dir, tiny); err != nil || !made {
		t.Fatalf("made %t, %v", made, err)
	}
	if got := list(t, dir); strings.Contains(got, "generating") {
		t.Errorf("remains are left: %s", got)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "capture.json"), "{}") // whatever is put beside it later
	if made, err := MakeCheckpoint(t.Context(), dir, tiny); err != nil || made {
		t.Errorf("again: made %t, %v", made, err)
	}
	if _, err := MakeCheckpoint(t.Context(), dir, checkpoint.GenerateOptions{Seed: 2, Tiny: true}); cli.Code(err) != cli.ExitInput {
		t.Errorf("over another seed: %v", err)
	}
}

func TestCheckpointRefusesAFolderInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "thesis.tex"), "x")
	_, err := MakeCheckpoint(t.Context(), dir, tiny)
	if cli.Code(err) != cli.ExitInput || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("got %v", err)
	}
	if got := list(t, dir); got != "thesis.tex" {
		t.Errorf("left behind: %s", got)
	}
	file := filepath.Join(dir, "thesis.tex")
	if _, err := MakeCheckpoint(t.Context(), file, tiny); cli.Code(err) != cli.ExitInput {
		t.Errorf("in place of a file: %v", err)
	}
}

func TestCaptureIsWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "checkpoint")
	if _, err := MakeCheckpoint(t.Context(), dir, tiny); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c.json", "c.json.gz"} {
		path := filepath.Join(t.TempDir(), name)
		if _, err := MakeCapture(dir, 2, path, nil); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c, err := capturegen.Decode(b)
		if err != nil || len(c.Cases) != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
	var out bytes.Buffer
	if _, err := MakeCapture(dir, 1, "-", &out); err != nil || out.Len() == 0 {
		t.Errorf("to standard output: %d bytes, %v", out.Len(), err)
	}
	for name, f := range map[string]func() (code int, err error){
		"no checkpoint": func() (int, error) { _, err := MakeCapture("/nonexistent", 2, "-", &out); return cli.ExitInput, err },
		"no folder": func() (int, error) {
			_, err := MakeCapture(dir, 2, "/nonexistent/c.json", nil)
			return cli.ExitInput, err
		},
		"no rank": func() (int, error) { _, err := MakeCapture(dir, 0, "-", &out); return cli.ExitUsage, err },
	} {
		if want, err := f(); cli.Code(err) != want {
			t.Errorf("%s: %v, want exit code %d", name, err, want)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/well":
		case "/ill":
			http.Error(w, "[ok]   arenas\n[fail] nats: no server\n[fail] lag: 3 behind\x1b\nnot ok", http.StatusServiceUnavailable)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	for _, c := range []struct {
		url  string
		code int
		text string
	}{
		{s.URL + "/well", cli.ExitOK, ""},
		{s.URL + "/ill", cli.ExitFailure, "503 Service Unavailable: nats: no server; lag: 3 behind�"},
		{s.URL + "/else", cli.ExitFailure, "404 page not found"},
		{"http://127.0.0.1:1/readyz", cli.ExitUnavailable, "refused"},
		{"127.0.0.1:9464/readyz", cli.ExitUsage, "no URL"},
		{"ftp://x/", cli.ExitUsage, "no URL"},
	} {
		err := Health(t.Context(), c.url)
		if cli.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: code %d, %v; want %d, %q", c.url, cli.Code(err), err, c.code, c.text)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Health(ended, s.URL+"/well"); err == nil {
		t.Error("asked after the end")
	}
}
