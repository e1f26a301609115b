package python

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/local"
	"github.com/drydock-rl/drydock/pkg/refit"
)

const model = "org/tiny-py.v1"

func open(t *testing.T) (*natsd.Server, *messages.Control) {
	t.Helper()
	s := natstest.Start(t, natsd.Options{})
	return s, natstest.Open(t, s, messages.Config{Model: model, Memory: true, Poll: 200 * time.Millisecond})
}

// publishers starts both ranks of a trainer in Python, and waits until its version is committed.
func publishers(t *testing.T, s *natsd.Server, job string, version int) (ranks [2]*program, key messages.Key) {
	t.Helper()
	for rank := range ranks {
		ranks[rank] = start(t, example(t, "publish.py", "--nats", s.URL(), "--model", model, "--job", job, "--world", "2",
			"--rank", fmt.Sprint(rank), "--version", fmt.Sprint(version),
			"--source", "model.embed.weight:F32:5,4", "--source", "model.down.weight:BF16:6,8", "--source", "model.norm.weight:BF16:4"))
	}
	var err error
	for _, p := range ranks {
		if key, err = messages.ParseKey(p.says("committed")); err != nil {
			t.Fatal(err)
		}
	}
	return ranks, key
}

// pattern is what publish.py fills a source with.
func pattern(version uint64, nbytes int) []byte {
	b := make([]byte, nbytes)
	for i := range b {
		b[i] = byte(i*7 + int(version))
	}
	return b
}

// destination takes the embedding whole, the right half of the columns of down, and norm into the middle of a larger parameter.
func destination() plan.Dest {
	return plan.Dest{
		Params: []plan.Param{
			{Name: "embed", DType: plan.F32, Shape: []int64{5, 4}},
			{Name: "down", DType: plan.BF16, Shape: []int64{6, 4}},
			{Name: "padded", DType: plan.BF16, Shape: []int64{6}},
		},
		Copies: []plan.Copy{
			{Source: "model.embed.weight", Param: 0, Shape: []int64{5, 4}, Stride: []int64{4, 1}},
			{Source: "model.down.weight", Ops: []plan.Op{{Name: "narrow", Args: []plan.Arg{{Int: 1}, {Int: 4}, {Int: 4}}}}, Param: 1, Shape: []int64{6, 4}, Stride: []int64{4, 1}},
			{Source: "model.norm.weight", Param: 2, Shape: []int64{4}, Stride: []int64{1}},
		},
		Fills: []plan.Fill{{Param: 2, Offset: 4, Shape: []int64{2}, Stride: []int64{1}, Value: 0}},
	}
}

// expected is destination, written down byte by byte.
func expected(version uint64) map[string][]byte {
	down := pattern(version, 6*8*2)
	want := map[string][]byte{"embed": pattern(version, 5*4*4), "padded": append(pattern(version, 8), 0, 0, 0, 0)}
	for row := range 6 {
		want["down"] = append(want["down"], down[row*16+8:row*16+16]...)
	}
	return want
}

// receiver is Drydock's own, which reads over the transport local alone.
func receiver(t *testing.T, c *messages.Control) *refit.Receiver {
	t.Helper()
	reads, err := local.New(local.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := refit.NewReceiver(refit.ReceiverConfig{
		Name: "go-receiver", Model: model, Control: c, ArenaRoot: filepath.Join(t.TempDir(), "arenas"),
		Transports: []rdma.Transport{reads}, Dests: []plan.Dest{destination()}, Stall: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := reads.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func serves(t *testing.T, r *refit.Receiver, version uint64) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(r.ArenaRoot(), "current", "rank-0.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := expected(version)
	if len(f.Tensors) != len(want) {
		t.Errorf("%d parameters are served, want %d", len(f.Tensors), len(want))
	}
	for _, p := range f.Tensors {
		if !bytes.Equal(f.Bytes(p), want[p.Name]) {
			t.Errorf("version %d: parameter %s is %x, want %x", version, p.Name, f.Bytes(p), want[p.Name])
		}
	}
}

// TestPythonPublishesAndGoApplies: versions of two ranks, written from docs/wire.md alone and served out of shared
// memory, are staged, verified and applied by Drydock's receiver, byte for byte; each is then retired and drained.
func TestPythonPublishesAndGoApplies(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	r := receiver(t, c)
	ctx := natstest.Context(t, patience)
	for _, version := range []int{5, 6} {
		ranks, key := publishers(t, s, "py-1", version)
		if newest, ok, err := c.Newest(ctx); err != nil || !ok || newest != key || key != (messages.Key{Run: 1, Version: uint64(version)}) {
			t.Fatalf("newest is %s, %v, %v", newest, ok, err)
		}
		staged, err := r.Stage(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(ctx, staged); err != nil {
			t.Fatal(err)
		}
		serves(t, r, key.Version)
		for _, p := range ranks {
			if err := p.in.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, p := range ranks {
			if got := p.says("drained"); got != key.String() {
				t.Errorf("drained %s", got)
			}
		}
	}
	if bad, n := c.Quarantine(); n != 0 {
		t.Errorf("quarantined %v", bad)
	}
}

// TestPythonWaitsForLeases looks at what Python published, and holds it.
func TestPythonWaitsForLeases(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	ranks, key := publishers(t, s, "py-2", 5)
	ctx := natstest.Context(t, patience)
	lease, err := c.AcquireLease(ctx, key, "go-reader")
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Assemble(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	l := v.Ranks[1].Layout
	if !slices.Equal(l.Names, []string{"model.embed.weight", "model.down.weight", "model.norm.weight"}) || !slices.Equal(l.Box, []int64{3, 5, 0, 4, 3, 6, 0, 8, 2, 4}) ||
		!slices.Equal(l.Shapes, []int64{5, 4, 6, 8, 4}) || l.DTypes[2] != messages.BF16 || v.Manifest.Nbytes() != 5*16+6*16+8 {
		t.Errorf("layout of rank 1: %+v", l)
	}
	if got, want := v.Ranks[1].Tiles.Digests[0], xxh3.Hash(pattern(5, 80)[48:]); got != want {
		t.Errorf("tile digest %x, want %x", got, want)
	}
	for _, p := range ranks {
		if err := p.in.Close(); err != nil {
			t.Error(err)
		}
	}
	// Both ranks go on to retire the version; while the lease lives, its commit is gone and its tables stay.
	for _, ok, err := c.Newest(ctx); ok; _, ok, err = c.Newest(ctx) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if held, err := c.Holders(ctx, key); err != nil || !slices.Equal(held, []string{"go-reader"}) {
		t.Errorf("held by %v, %v", held, err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
	for _, p := range ranks {
		p.says("drained")
	}
}

// TestPythonReads: a reader written from docs/wire.md alone assembles a version that Go published.
func TestPythonReads(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	ctx := natstest.Context(t, patience)
	run, err := c.TakeRun(ctx, "go-job", 3)
	if err != nil {
		t.Fatal(err)
	}
	key := messages.Key{Run: run.Run, Version: 9}
	for rank := range 3 {
		if err := c.Publish(ctx, publication(key, rank, 3)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Commit(ctx, key, 3); err != nil {
		t.Fatal(err)
	}
	out, err := example(t, "read.py", "--nats", s.URL(), "--model", model, "--receiver", "py-reader").Output()
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
	if r.Nbytes != 32 || r.Incarnation != "life-1-of-2" || !slices.Equal(r.Tiles, []uint64{9<<8 | 2, 2}) || len(r.Shards) != 2 {
		t.Errorf("rank 2: %+v", r)
	}
	if sh := r.Shards[1]; sh.Source != "head.weight" || sh.DType != "BF16" || sh.Offset != 16 || !slices.Equal(sh.Box, []int64{2, 1, 0, 8}) {
		t.Errorf("shard 1 of rank 2: %+v", sh)
	}
	if left, err := c.Holders(ctx, key); err != nil || len(left) != 0 {
		t.Errorf("the reader left its lease: %v, %v", left, err)
	}
}

// publication makes rank's part of a version that nobody serves.
func publication(key messages.Key, rank, world int) messages.Publication {
	row := []int64{int64(rank), int64(rank) + 1, 0, 8}
	return messages.Publication{
		Key: key, Rank: rank, World: world,
		Layout: &messages.Layout{
			Rank: rank, Regions: []int64{4096}, Names: []string{"embed.weight", "head.weight"}, DTypes: []messages.DType{messages.BF16, messages.BF16},
			ShapeEnd: []uint32{2, 4}, Shapes: []int64{int64(world), 8, int64(world), 8}, Grid: []int64{1, 8, 1, 8},
			Source: []uint32{0, 1}, Region: []uint32{0, 0}, Offset: []int64{0, 16}, Box: slices.Concat(row, row),
		},
		Endpoint: &messages.Endpoint{
			Rank: rank, Host: "host-a", Incarnation: fmt.Sprintf("life-1-of-%d", rank), Regions: []messages.EndpointRegion{{Nbytes: 4096}},
		},
		Tiles: &messages.Tiles{Digests: []uint64{key.Version<<8 | uint64(rank), 2}},
	}
}
