package refit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/inproc"
	"github.com/drydock-rl/drydock/pkg/rdma/rdmatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// tensor is a source of the tests' little model.
type tensor struct {
	name  string
	dtype plan.DType
	shape []int64
}

// model has a column-parallel and a row-parallel matrix, a vector that is cast, and a tensor without bytes.
var model = []tensor{
	{"up", plan.BF16, []int64{64, 48}},
	{"down", plan.BF16, []int64{32, 64}},
	{"norm", plan.BF16, []int64{37}},
	{"empty", plan.F32, []int64{0, 5}},
}

// value is the byte k of a tensor at a version. The odd byte of a bfloat16 keeps it finite.
func value(name string, version uint64, k int64) byte {
	b := byte(k*131+k>>8*7) + byte(version)*29 + name[0]
	if k%2 == 1 {
		b &= 0x3f
	}
	return b
}

func content(t tensor, version uint64) []byte {
	n := t.dtype.Size()
	for _, d := range t.shape {
		n *= d
	}
	b := make([]byte, n)
	for k := range b {
		b[k] = value(t.name, version, int64(k))
	}
	return b
}

// rows is the part of dimension 0 that a rank of world holds, by ceil-chunks.
func rows(n int64, rank, world int) (lo, hi int64) {
	step := (n + int64(world) - 1) / int64(world)
	return min(n, int64(rank)*step), min(n, int64(rank+1)*step)
}

// layout is what a rank holds: rows of every tensor, or with replicated all of everything.
func layout(rank, world int, replicated bool) *messages.Layout {
	l := &messages.Layout{Rank: rank}
	var at int64
	for i, t := range model {
		l.Names = append(l.Names, t.name)
		l.DTypes = append(l.DTypes, messages.DType(t.dtype))
		l.Shapes = append(l.Shapes, t.shape...)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
		l.Grid = append(l.Grid, tiles.ChooseGrid(t.shape, t.dtype.Size(), tiles.Options{MinBytes: 32})...)
		lo, hi := rows(t.shape[0], rank, world)
		if replicated {
			lo, hi = 0, t.shape[0]
		}
		n := (hi - lo) * t.dtype.Size()
		l.Box = append(l.Box, lo, hi)
		for _, d := range t.shape[1:] {
			l.Box = append(l.Box, 0, d)
			n *= d
		}
		l.Source, l.Region, l.Offset = append(l.Source, uint32(i)), append(l.Region, 0), append(l.Offset, at)
		at += n
	}
	l.Regions = []int64{at}
	return l
}

// fill writes a rank's shards of a version.
func fill(mem []byte, l *messages.Layout, version uint64) {
	box := 0
	for k, t := range model {
		lo := l.Box[box]
		row := int64(len(content(t, 0)))
		if t.shape[0] > 0 {
			row /= t.shape[0]
		}
		n := (l.Box[box+1] - lo) * row
		for i := range n {
			mem[l.Offset[k]+i] = value(t.name, version, lo*row+i)
		}
		box += 2 * len(t.shape)
	}
}

// destination is one of two tensor-parallel ranks: half the rows of up, half the columns of down, norm as float32, and
// a parameter with a constant end.
func destination(rank int) plan.Dest {
	r := int64(rank)
	narrow := func(dim, start, n int64) []plan.Op {
		return []plan.Op{{Name: "narrow", Args: []plan.Arg{{Int: dim}, {Int: start}, {Int: n}}}}
	}
	return plan.Dest{
		Rank: rank,
		Params: []plan.Param{
			{Name: "up", DType: plan.BF16, Shape: []int64{32, 48}},
			{Name: "down", DType: plan.BF16, Shape: []int64{32, 32}},
			{Name: "norm", DType: plan.F32, Shape: []int64{37}},
			{Name: "padded", DType: plan.BF16, Shape: []int64{40}},
			{Name: "empty", DType: plan.F32, Shape: []int64{0, 5}},
			{Name: "computed", DType: plan.F32, Shape: []int64{3}, Excluded: "the loader computes it"},
		},
		Copies: []plan.Copy{
			{Source: "up", Ops: narrow(0, 32*r, 32), Param: 0, Shape: []int64{32, 48}, Stride: []int64{48, 1}},
			{Source: "down", Ops: narrow(1, 32*r, 32), Param: 1, Shape: []int64{32, 32}, Stride: []int64{32, 1}},
			{Source: "norm", Param: 2, Shape: []int64{37}, Stride: []int64{1}},
			{Source: "norm", Param: 3, Shape: []int64{37}, Stride: []int64{1}},
			{Source: "empty", Param: 4, Shape: []int64{0, 5}, Stride: []int64{5, 1}},
		},
		Fills: []plan.Fill{{Param: 3, Offset: 37, Shape: []int64{3}, Stride: []int64{1}, Value: 0}},
		Alias: map[string]string{"tied": "up"},
	}
}

// expected is the bytes of each parameter of a destination rank.
func expected(rank int, version uint64) map[string][]byte {
	up, down, norm := content(model[0], version), content(model[1], version), content(model[2], version)
	half := len(up) / 2
	want := map[string][]byte{"up": up[rank*half : (rank+1)*half], "empty": {}}
	for row := range 32 {
		at := row*128 + rank*64
		want["down"] = append(want["down"], down[at:at+64]...)
	}
	for i := 0; i < len(norm); i += 2 {
		want["norm"] = append(want["norm"], 0, 0, norm[i], norm[i+1])
	}
	want["padded"] = append(slices.Clone(norm), make([]byte, 6)...)
	return want
}

// world is a server, trainers and what they serve, all in this process.
type world struct {
	t       *testing.T
	ctx     context.Context
	server  *natsd.Server
	cfg     messages.Config
	control *messages.Control
	net     *inproc.Net
	ranks   []*Publisher
	log     *slog.Logger
}

type worldOptions struct {
	ranks      int
	replicated bool
	slots      int // of each rank; default 2
	cfg        messages.Config
}

func newWorld(t *testing.T, o worldOptions) *world {
	t.Helper()
	o.cfg.Model = "tests/" + t.Name()
	o.cfg.Token = fmt.Sprintf("t%d", time.Now().UnixNano())
	w := &world{t: t, ctx: natstest.Context(t, patience), server: natstest.Start(t, natsd.Options{}), cfg: o.cfg, net: inproc.NewNet()}
	w.log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	w.control = natstest.Open(t, w.server, w.cfg)
	for rank := range o.ranks {
		w.addRank(rank, o)
	}
	return w
}

// testWriter logs into the test's output.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(bytes.TrimRight(b, "\n")))
	return len(b), nil
}

func (w *world) addRank(rank int, o worldOptions) {
	w.t.Helper()
	l := layout(rank, o.ranks, o.replicated)
	incarnation := fmt.Sprintf("rank-%d", rank)
	var slots []*rdma.Memory
	for range max(2, o.slots) {
		slots = append(slots, rdmatest.Alloc(w.t, l.Regions[0], 0))
	}
	transport := w.net.New(incarnation)
	w.t.Cleanup(func() { _ = transport.Close() })
	p, err := NewPublisher(w.ctx, PublisherConfig{
		Model: w.cfg.Model, Incarnation: incarnation, Rank: rank, World: o.ranks, Job: "job", Control: w.control,
		Transports: []rdma.Transport{transport}, Slots: slots, Layout: l, CommitTimeout: patience, DrainTimeout: patience,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.ranks = append(w.ranks, p)
}

// publish has all ranks publish a version with the values of another one, most often the same.
func (w *world) publish(version uint64) messages.Key {
	w.t.Helper()
	var wg sync.WaitGroup
	for _, p := range w.ranks {
		wg.Go(func() {
			mem, err := p.Memory(w.ctx, version)
			if err == nil {
				fill(mem.Bytes(), p.cfg.Layout, version)
				_, err = p.Publish(w.ctx, version)
			}
			if err != nil {
				w.t.Errorf("rank %d: %v", p.cfg.Rank, err)
			}
		})
	}
	wg.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
	return w.ranks[0].Key(version)
}

// receiver makes a receiver of both destination ranks; change adapts its configuration.
func (w *world) receiver(change func(*ReceiverConfig)) *Receiver {
	w.t.Helper()
	cfg := ReceiverConfig{
		Name: "receiver", Model: w.cfg.Model, Control: w.control, ArenaRoot: filepath.Join(w.t.TempDir(), "arenas"),
		Transports: []rdma.Transport{w.net.New("reader-" + rdma.NewIncarnation())}, Dests: []plan.Dest{destination(0), destination(1)},
		Stall: 5 * time.Second, Logger: w.log,
	}
	if change != nil {
		change(&cfg)
	}
	r, err := NewReceiver(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			w.t.Error(err)
		}
		for _, tr := range cfg.Transports {
			_ = tr.Close()
		}
	})
	return r
}

// faulty makes a receiver whose reads are hit by a fault.
func (w *world) faulty(f rdmatest.Fault) *Receiver {
	return w.receiver(func(c *ReceiverConfig) { c.Transports[0] = rdmatest.Faulty(c.Transports[0], f) })
}

// refit stages and applies a version.
func (w *world) refit(r *Receiver, key messages.Key) Stats {
	w.t.Helper()
	s, err := r.Stage(w.ctx, key)
	if err == nil {
		err = r.Apply(w.ctx, s)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Stats()
}

// serves compares every byte of what the receiver serves with a version.
func (w *world) serves(r *Receiver, version uint64) {
	w.t.Helper()
	for rank := range 2 {
		path := filepath.Join(r.ArenaRoot(), "current", fmt.Sprintf("rank-%d.safetensors", rank))
		f, err := safetensors.Open(path)
		if err != nil {
			w.t.Fatal(err)
		}
		want := expected(rank, version)
		if len(f.Tensors) != len(want) {
			w.t.Errorf("rank %d serves %d tensors, want %d", rank, len(f.Tensors), len(want))
		}
		for _, tensor := range f.Tensors {
			if !bytes.Equal(f.Bytes(tensor), want[tensor.Name]) {
				w.t.Errorf("rank %d, version %d: parameter %s differs", rank, version, tensor.Name)
			}
		}
		if err := f.Close(); err != nil {
			w.t.Error(err)
		}
	}
	if got := r.Serving().Version; got != version {
		w.t.Errorf("the receiver says that it serves %d, want %d", got, version)
	}
}

// servesNothing fails if anything was applied.
func (w *world) servesNothing(r *Receiver) {
	w.t.Helper()
	if _, err := os.Lstat(filepath.Join(r.ArenaRoot(), "current")); err == nil {
		w.t.Error("something was applied")
	}
}

// fails asks Stage to fail with a class, and returns the error.
func (w *world) fails(r *Receiver, key messages.Key, class Class) error {
	w.t.Helper()
	s, err := r.Stage(w.ctx, key)
	if err == nil {
		r.Release(s)
		w.t.Fatalf("stage of %s succeeded, want class %s", key, class)
	}
	if ClassOf(err) != class {
		w.t.Fatalf("stage of %s: class %s, want %s: %v", key, ClassOf(err), class, err)
	}
	return err
}
