package served

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
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

// plainLayout lays shards out one after another, over the given number of regions, and strided ones with gaps.
func plainLayout(regions int, strided bool, sources ...source) *messages.Layout {
	l := &messages.Layout{Regions: make([]int64, regions)}
	for i, s := range sources {
		l.Names, l.DTypes = append(l.Names, s.name), append(l.DTypes, s.dtype)
		l.Shapes = append(l.Shapes, s.shape...)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
		for _, box := range s.boxes {
			r := uint32(len(l.Source) % regions)
			l.Source, l.Region, l.Offset = append(l.Source, uint32(i)), append(l.Region, r), append(l.Offset, l.Regions[r])
			l.Box = append(l.Box, box...)
			step := int64(1)
			stride := make([]int64, len(s.shape))
			for d := range stride { // column-major, with a gap behind each column
				stride[d] = step
				step = step*max(1, box[2*d+1]-box[2*d]) + 3
			}
			if !strided {
				step = 1
				for d := len(stride) - 1; d >= 0; d-- {
					stride[d] = step
					step *= box[2*d+1] - box[2*d]
				}
			} else {
				l.Stride = append(l.Stride, stride...)
			}
			l.Regions[r] += (step*s.dtype.Size() + 63) &^ 63
		}
	}
	return l
}

// elements lists every element of every shard, by source and coordinates: the definition of what a layout holds.
func elements(t *testing.T, l *messages.Layout, regions [][]byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range shards(l) {
		var at []int64
		for d := 0; d < len(s.box); d += 2 {
			at = append(at, s.box[d])
		}
		c := cutShard{shardOf: s, grid: make([]int64, len(at))}
		stride := make([]int64, len(at))
		c.plainStrides(stride)
		for s.nbytes() > 0 {
			off := s.offset
			for d := range at {
				off += (at[d] - s.box[2*d]) * stride[d]
			}
			key := fmt.Sprint(l.Names[s.source], at)
			if _, twice := out[key]; twice {
				t.Fatalf("element %s is in two shards", key)
			}
			out[key] = string(regions[s.region][off : off+s.elsize])
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

func memory(r *rand.Rand, l *messages.Layout) [][]byte {
	out := make([][]byte, len(l.Regions))
	for i, n := range l.Regions {
		out[i] = make([]byte, n)
		for k := range out[i] {
			out[i][k] = byte(r.Uint32())
		}
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

func TestSnapshotsHoldTheSameElementsAndTheirDigests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		regions int
		strided bool
		o       Options
	}{
		{"one region", 1, false, small},
		{"three regions", 3, false, small},
		{"strided", 2, true, small},
		{"plain", 1, false, Options{Parts: 1}},
		{"plain, strided", 1, true, Options{Parts: 1}},
		{"defaults", 2, false, Options{}},
		{"one worker, four parts", 1, false, Options{Parts: 4, MinBytes: 1, Workers: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			plain := plainLayout(c.regions, c.strided, mixed()...)
			s, err := New(plain, c.o)
			if err != nil {
				t.Fatal(err)
			}
			src := memory(rand.New(rand.NewPCG(1, 2)), plain)
			dst := make([]byte, s.Nbytes())
			got, err := s.Fill(dst, src...)
			if err != nil {
				t.Fatal(err)
			}
			checkServed(t, s, plain, src, dst, got)
			if !s.inPlace {
				return
			}
			mem := append(bytes.Clone(src[0]), make([]byte, max(0, s.Nbytes()-int64(len(src[0]))))...)
			if err := s.Repack(mem); err != nil {
				t.Fatal(err)
			}
			if got, err = s.Digest(mem); err != nil {
				t.Fatal(err)
			}
			checkServed(t, s, plain, src, mem, got)
		})
	}
}

func checkServed(t *testing.T, s *Snapshot, plain *messages.Layout, src [][]byte, dst []byte, got *messages.Tiles) {
	t.Helper()
	want, have := elements(t, plain, src), elements(t, s.Layout(), [][]byte{dst})
	for k, v := range want {
		if have[k] != v {
			t.Fatalf("element %s: served as %x, held as %x", k, have[k], v)
		}
	}
	if len(have) != len(want) {
		t.Fatalf("%d elements served, %d held", len(have), len(want))
	}
	sums, err := tableOf(s.Layout()).DigestAll(dst)
	if err != nil || !slices.Equal(sums, got.Digests) {
		t.Fatalf("%d digests made while copying, %d afterwards, %v: they differ", len(got.Digests), len(sums), err)
	}
}

// TestBlocksAreWholeTiles: where a source is cut, a tile is one run of served bytes.
func TestBlocksAreWholeTiles(t *testing.T) {
	t.Parallel()
	l := plainLayout(1, false, source{"w", messages.BF16, []int64{2048, 768}, [][]int64{{0, 128, 0, 768}}})
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
		l := plainLayout(1, false, source{"w", messages.BF16, c.shape, nil})
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
	l := plainLayout(2, false, mixed()...)
	for _, o := range []Options{{Parts: -1}, {Parts: 65}, {MinBytes: -1}, {Workers: -1}} {
		if _, err := New(l, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	s, err := New(l, small)
	if err != nil {
		t.Fatal(err)
	}
	src := memory(rand.New(rand.NewPCG(1, 2)), l)
	for what, err := range map[string]error{
		"one region of two": second(s.Fill(make([]byte, s.Nbytes()), src[0])),
		"a short region":    second(s.Fill(make([]byte, s.Nbytes()), src[0], src[1][1:])),
		"a short slot":      second(s.Fill(make([]byte, s.Nbytes()-1), src...)),
		"two in place":      s.Repack(make([]byte, s.Nbytes())),
		"a digest of less":  second(s.Digest(make([]byte, s.Nbytes()-1))),
	} {
		if err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func second(_ *messages.Tiles, err error) error { return err }

func TestModes(t *testing.T) {
	t.Parallel()
	receiver := func(ranks ...int) messages.Status { return messages.Status{Role: messages.RoleReceiver, Ranks: ranks} }
	publisher := messages.Status{Role: messages.RolePublisher, Ranks: []int{63}}
	l := plainLayout(1, false,
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

// BenchmarkSnapshot compares a plain copy with the copies that also repack and digest.
func BenchmarkSnapshot(b *testing.B) {
	var boxes [][]int64
	for range 40 {
		boxes = append(boxes, []int64{0, 2048, 0, 768})
	}
	l := plainLayout(1, false, source{"w", messages.BF16, []int64{2048, 768}, boxes})
	src, dst := make([]byte, l.Regions[0]), make([]byte, l.Regions[0])
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("copy on one core", func() error { copy(dst, src); return nil })
	for name, o := range map[string]Options{"plain": {Parts: 1}, "blocks": {}} {
		s, err := New(l, o)
		if err != nil {
			b.Fatal(err)
		}
		run(name+", copied and digested", func() error { return second(s.Fill(dst, src)) })
		run(name+", repacked in place", func() error { return s.Repack(src) })
		run(name+", digested", func() error { return second(s.Digest(dst)) })
	}
}
