package messages_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

// python finds an interpreter that has the examples' packages: DRYDOCK_PYTHON, or the
// one on the path.
func python(t *testing.T) string {
	t.Helper()
	for _, exe := range []string{os.Getenv("DRYDOCK_PYTHON"), "python3"} {
		if exe != "" && exec.Command(exe, "-c", "import nats, msgpack, zstandard, xxhash").Run() == nil {
			return exe
		}
	}
	t.Skip("no Python with nats-py, msgpack, zstandard and xxhash: set DRYDOCK_PYTHON")
	return ""
}

func example(t *testing.T, exe, script string, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join("..", "..", "python", "examples", script)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 200 {
		t.Errorf("%s has %d lines: examples stay short", script, n)
	}
	cmd := exec.CommandContext(natstest.Context(t, 60*time.Second), exe, append([]string{path}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestPythonPublishes: a publisher written from docs/wire.md alone publishes a version
// of two ranks that Go assembles, with the bytes' digests, leases and retires.
func TestPythonPublishes(t *testing.T) {
	t.Parallel()
	exe := python(t)
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	var inputs []interface{ Close() error }
	var lines []*bufio.Scanner
	for rank := range 2 {
		cmd := example(t, exe, "publish.py", "--nats", s.URL(), "--model", model, "--job", "py-1", "--world", "2",
			"--rank", fmt.Sprint(rank), "--version", "5", "--source", "model.embed.weight:F32:5,4", "--source", "model.norm.weight:BF16:4")
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
		inputs, lines = append(inputs, in), append(lines, bufio.NewScanner(out))
	}
	for rank, l := range lines {
		if !l.Scan() || l.Text() != `{"committed": "1.5"}` {
			t.Fatalf("rank %d said %q", rank, l.Text())
		}
	}
	ctx := natstest.Context(t, 20*time.Second)
	key, ok, err := c.Newest(ctx)
	if err != nil || !ok || key != (messages.Key{Run: 1, Version: 5}) {
		t.Fatalf("newest is %s, %v, %v", key, ok, err)
	}
	lease, err := c.AcquireLease(ctx, key, "go-reader")
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Assemble(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	l := v.Ranks[1].Layout
	if !slices.Equal(l.Names, []string{"model.embed.weight", "model.norm.weight"}) || !slices.Equal(l.Box, []int64{3, 5, 0, 4, 2, 4}) ||
		!slices.Equal(l.Shapes, []int64{5, 4, 4}) || l.DTypes[1] != messages.BF16 || v.Manifest.Nbytes() != 5*16+8 {
		t.Errorf("layout of rank 1: %+v", l)
	}
	shard := make([]byte, 32)
	for i := range shard {
		shard[i] = byte((48+i)*7 + 5)
	}
	if got := v.Ranks[1].Tiles.Digests[0]; got != xxh3.Hash(shard) {
		t.Errorf("tile digest %x, want %x", got, xxh3.Hash(shard))
	}
	for _, in := range inputs {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
	for rank, l := range lines {
		if !l.Scan() || l.Text() != `{"drained": "1.5"}` {
			t.Errorf("rank %d said %q", rank, l.Text())
		}
	}
	if bad, n := c.Quarantine(); n != 0 {
		t.Errorf("quarantined %v", bad)
	}
}

// TestPythonReads: a reader written from docs/wire.md alone assembles a version that Go
// published.
func TestPythonReads(t *testing.T) {
	t.Parallel()
	exe := python(t)
	s := natstest.Start(t, natsd.Options{})
	c := natstest.Open(t, s, memory())
	key := messages.Key{Run: takeRun(t, c, "go-job", 3).Run, Version: 9}
	publishAll(t, c, key, 3)
	out, err := example(t, exe, "read.py", "--nats", s.URL(), "--model", model, "--receiver", "py-reader").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version, Job string
		World        int
		Ranks        []struct {
			Rank, Nbytes int
			Incarnation  string
			Tiles        []uint64
			Shards       []struct {
				Source, DType string
				Shape, Box    []int64
				Offset        int64
			}
		}
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if got.Version != key.String() || got.Job != "go-job" || got.World != 3 || len(got.Ranks) != 3 {
		t.Fatalf("got %+v", got)
	}
	r := got.Ranks[2]
	if r.Nbytes != 32 || r.Incarnation != "life-1-of-2" || r.Tiles[0] != 9<<8|2 || len(r.Shards) != 2 {
		t.Errorf("rank 2: %+v", r)
	}
	if sh := r.Shards[1]; sh.Source != "head.weight" || sh.DType != "BF16" || sh.Offset != 16 || !slices.Equal(sh.Box, []int64{2, 1, 0, 8}) {
		t.Errorf("shard 1 of rank 2: %+v", sh)
	}
	if left, err := c.Holders(natstest.Context(t, 5*time.Second), key); err != nil || len(left) != 0 {
		t.Errorf("the reader left its lease: %s, %v", strings.Join(left, ","), err)
	}
}
