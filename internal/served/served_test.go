package served

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is one source of a test's layout with the boxes that the rank holds of it.
type source struct {
	name  string
	dtype messages.DType
	shape []int64
	boxes [][]int64
}

// plainLayout lays shards out one after another.
func plainLayout(sources ...source) *messages.Layout {
	l := &messages.Layout{Regions: make([]int64, 1)}
	for i, s := range sources {
		l.Names, l.DTypes = append(l.Names, s.name), append(l.DTypes, s.dtype)
		l.Shapes = append(l.Shapes, s.shape...)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
		for _, box := range s.boxes {
			l.Source, l.Region, l.Offset = append(l.Source, uint32(i)), append(l.Region, 0), append(l.Offset, l.Regions[0])
			l.Box = append(l.Box, box...)
			nbytes := s.dtype.Size()
			for d := range s.shape {
				nbytes *= box[2*d+1] - box[2*d]
			}
			l.Regions[0] += (nbytes + 63) &^ 63
		}
	}
	return l
}

// elements lists every element of every shard, by source and coordinates: the definition of what a layout holds.
func elements(t *testing.T, l *messages.Layout, mem []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range shards(l) {
		var at []int64
		for d := 0; d < len(s.box); d += 2 {
			at = append(at, s.box[d])
		}
		stride := make([]int64, len(at))
		step := s.elsize
		for d := len(at) - 1; d >= 0; d-- {
			stride[d] = step
			step *= s.box[2*d+1] - s.box[2*d]
		}
		for s.nbytes() > 0 {
			off := s.offset
			for d := range at {
				off += (at[d] - s.box[2*d]) * stride[d]
			}
			key := fmt.Sprint(l.Names[s.source], at)
			if _, twice := out[key]; twice {
				t.Fatalf("element %s is in two shards", key)
			}
			out[key] = string(mem[off : off+s.elsize])
			d := len(at) - 1
			for ; d >= 0; d-- {
				if at[d]++; at[d] < s.box[2*d+1] {
					break
				}
				at[d] = s.box[2*d]
			}
			if d < 0 {
				break
			}
		}
	}
	return out
}

func memory(r *rand.Rand, l *messages.Layout) []byte {
	out := make([]byte, l.Regions[0])
	for k := range out {
		out[k] = byte(r.Uint32())
	}
	return out
}

// tableOf is the tile geometry of a layout, as a receiver makes it.
func tableOf(l *messages.Layout) *tiles.Table {
	t := &tiles.Table{ShapeEnd: l.ShapeEnd, Grid: l.Grid, Source: l.Source, Offset: l.Offset, Box: l.Box, Stride: l.Stride}
	for _, d := range l.DTypes {
		t.ElSize = append(t.ElSize, d.Size())
	}
	return t
}

// mixed has sources of all ranks, cut and uncut ones, uneven and empty shards.
func mixed() []source {
	return []source{
		{"matrix", messages.BF16, []int64{64, 32}, [][]int64{{8, 40, 0, 32}}},
		{"a slice of columns", messages.BF16, []int64{64, 32}, [][]int64{{0, 64, 3, 21}}},
		{"two shards", messages.F32, []int64{48, 16}, [][]int64{{0, 16, 0, 16}, {32, 48, 0, 16}}},
		{"experts", messages.U8, []int64{4, 16, 64}, [][]int64{{1, 3, 0, 16, 0, 64}}},
		{"odd", messages.F16, []int64{33, 7}, [][]int64{{0, 33, 0, 7}}},
		{"vector", messages.F32, []int64{100}, [][]int64{{25, 50}}},
		{"scalar", messages.F64, nil, [][]int64{nil}},
		{"empty", messages.BF16, []int64{64, 32}, [][]int64{{64, 64, 0, 32}}},
		{"nothing", messages.BF16, []int64{0, 32}, [][]int64{{0, 0, 0, 32}}},
	}
}

var small = Options{MinBytes: 1, Tiles: tiles.Options{MinBytes: 64, MaxBytes: 256}}

func TestSnapshotsHoldTheSameElements(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"small": small, "plain": {Parts: 1}, "defaults": {}, "one worker, four parts": {Parts: 4, MinBytes: 1, Workers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := plainLayout(mixed()...)
			s, err := New(plain, o)
			if err != nil {
				t.Fatal(err)
			}
			src := memory(rand.New(rand.NewPCG(1, 2)), plain)
			mem := append(bytes.Clone(src), make([]byte, max(0, s.Nbytes()-int64(len(src))))...)
			if err := s.Repack(mem); err != nil {
				t.Fatal(err)
			}
			want, have := elements(t, plain, src), elements(t, s.Layout(), mem)
			if !maps.Equal(want, have) {
				t.Fatalf("%d elements served, %d held, or they differ", len(have), len(want))
			}
			if sums, err := tableOf(s.Layout()).DigestAll(mem); err != nil || len(sums) == 0 {
				t.Fatalf("%d digests of served memory, %v", len(sums), err)
			}
		})
	}
}

// TestBlocksAreWholeTiles: where a source is cut, a tile is one run of served bytes.
func TestBlocksAreWholeTiles(t *testing.T) {
	t.Parallel()
	l := plainLayout(source{"w", messages.BF16, []int64{2048, 768}, [][]int64{{0, 128, 0, 768}}})
	s, err := New(l, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.Layout().Source); n != 16 || !s.Cut() {
		t.Fatalf("%d blocks, want 16", n)
	}
	if g := s.Layout().Grid; g[1] != 768/16 {
		t.Errorf("grid %v: a tile is not as wide as a block", g)
	}
	for k, off := range s.Layout().Offset {
		if want := int64(k) * 128 * 48 * 2; off != want {
			t.Errorf("block %d lies at %d, want %d", k, off, want)
		}
	}
}

func TestWidth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape []int64
		o     Options
		want  int64
	}{
		{[]int64{2048, 768}, Options{}, 48},
		{[]int64{128, 2048}, Options{}, 256}, // sixteenths would be smaller than a block may be
		{[]int64{2048, 768}, Options{Parts: 4}, 192},
		{[]int64{2048, 768}, Options{Parts: 1}, 768},
		{[]int64{2048, 769}, Options{}, 769},
		{[]int64{2048, 24}, Options{MinBytes: 1}, 3},
		{[]int64{1, 1 << 20}, Options{}, 1 << 20}, // one row is one run already
		{[]int64{128, 2048, 768}, Options{}, 48},
		{[]int64{1 << 20}, Options{}, 1 << 20},
		{nil, Options{}, 1},
		{[]int64{5, 0}, Options{}, 1},
		{[]int64{2048, 768}, Options{Columns: func(string, []int64) bool { return false }}, 768},
	} {
		l := plainLayout(source{"w", messages.BF16, c.shape, nil})
		if err := c.o.validate(); err != nil {
			t.Fatal(err)
		}
		if w := c.o.width(l, 0); w != c.want {
			t.Errorf("shape %v, at most %d parts: blocks of %d columns, want %d", c.shape, c.o.Parts, w, c.want)
		}
	}
}

func TestSnapshotsRefuse(t *testing.T) {
	t.Parallel()
	l := plainLayout(mixed()...)
	for _, o := range []Options{{Parts: -1}, {Parts: 65}, {MinBytes: -1}, {Workers: -1}} {
		if _, err := New(l, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	s, err := New(l, small)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Repack(make([]byte, s.Nbytes()-1)); err == nil {
		t.Error("less memory than the layout needs was taken")
	}
	two, strided := *l, *l
	two.Regions = []int64{1, 1}
	strided.Stride = make([]int64, len(l.Box)/2)
	for what, l := range map[string]*messages.Layout{"two regions": &two, "strides": &strided} {
		if _, err := New(l, small); err == nil {
			t.Errorf("%s were taken", what)
		}
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	receiver := func(ranks ...int) messages.Status { return messages.Status{Role: messages.RoleReceiver, Ranks: ranks} }
	publisher := messages.Status{Role: messages.RolePublisher, Ranks: []int{63}}
	l := plainLayout(
		source{"model.layers.0.mlp.down_proj.weight", messages.BF16, []int64{512, 256}, [][]int64{{0, 512, 0, 256}}},
		source{"model.layers.0.mlp.up_proj.weight", messages.BF16, []int64{256, 512}, [][]int64{{0, 256, 0, 512}}})
	for _, c := range []struct {
		mode     string
		statuses []messages.Status
		blocks   int
	}{
		{"", nil, 2},
		{"plain", []messages.Status{receiver(3)}, 2},
		{"blocks", nil, 4 + 4},
		{"auto", nil, 2},
		{"auto", []messages.Status{receiver(0), publisher}, 2},
		{"auto", []messages.Status{receiver(0, 1), receiver(2, 3), publisher}, 4 + 1},
	} {
		m, err := ParseMode(c.mode)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(l, m.Options(AskedBy(c.statuses)))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(s.Layout().Source); n != c.blocks {
			t.Errorf("mode %q, asked %+v: %d shards, want %d", c.mode, AskedBy(c.statuses), n, c.blocks)
		}
	}
	if _, err := ParseMode("rows"); err == nil {
		t.Error("rows were taken")
	}
}

// BenchmarkRepack is beside a plain copy of the same bytes on one core.
func BenchmarkRepack(b *testing.B) {
	var boxes [][]int64
	for range 40 {
		boxes = append(boxes, []int64{0, 2048, 0, 768})
	}
	l := plainLayout(source{"w", messages.BF16, []int64{2048, 768}, boxes})
	src, dst := make([]byte, l.Regions[0]), make([]byte, l.Regions[0])
	s, err := New(l, Options{})
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"copy":   func() error { copy(dst, src); return nil },
		"repack": func() error { return s.Repack(src) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
