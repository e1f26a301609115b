// Package python holds tests of Drydock's wire protocol against programs in Python that were written from
// docs/wire.md alone (python/examples). `make test-python-wire` makes the environment that they need; the tests are
// part of `make test` once it is there.
package python

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each program: an interpreter starts in half a second on a busy machine.
const patience = 60 * time.Second

// interpreter finds Python with the examples' packages: DRYDOCK_PYTHON, or the environment that make has built.
// DRYDOCK_REQUIRE_PYTHON=1 makes it a failure that there is none.
func interpreter(t *testing.T) string {
	t.Helper()
	venv := filepath.Join("..", "..", ".cache", "venv-python-wire", "bin", "python")
	for _, exe := range []string{os.Getenv("DRYDOCK_PYTHON"), venv} {
		if exe != "" && exec.CommandContext(t.Context(), exe, "-c", "import nats, msgpack, zstandard, xxhash").Run() == nil {
			return exe
		}
	}
	const missing = "no Python with nats-py, msgpack, zstandard and xxhash: make test-python-wire, or set DRYDOCK_PYTHON"
	if os.Getenv("DRYDOCK_REQUIRE_PYTHON") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// example prepares a program of python/examples.
func example(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join("..", "..", "python", "examples", script)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 200 {
		t.Errorf("%s has %d lines: examples stay short", script, n)
	}
	cmd := exec.CommandContext(natstest.Context(t, patience), interpreter(t), append([]string{"-B", path}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// program is one that runs, says a line of JSON for each thing that it has done, and ends with its standard input.
type program struct {
	t     *testing.T
	in    io.Closer
	lines *bufio.Scanner
}

func start(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // its output was checked
	return &program{t: t, in: in, lines: bufio.NewScanner(out)}
}

// says waits for a line with this key, and returns its value.
func (p *program) says(key string) string {
	p.t.Helper()
	said := map[string]string{}
	if !p.lines.Scan() || json.Unmarshal(p.lines.Bytes(), &said) != nil || said[key] == "" {
		p.t.Fatalf("said %q, want %s", p.lines.Text(), key)
	}
	return said[key]
}
