package messages

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages/internal/columns"
)

// benchSources reads the source list of the shared planner benchmark.
func benchSources(tb testing.TB) (names []string, shapes [][]int64) {
	tb.Helper()
	const path = "../../../shared/bench/qwen3_30b_a3b.tp4.rank1.capture.json.gz"
	f, err := os.Open(path)
	if err != nil {
		tb.Skipf("benchmark capture is not here: %v", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var doc struct {
		Sources []struct {
			Name  string
			Shape []int64
		}
	}
	if err := json.NewDecoder(z).Decode(&doc); err != nil {
		tb.Fatal(err)
	}
	for _, s := range doc.Sources {
		names, shapes = append(names, s.Name), append(shapes, s.Shape)
	}
	if len(names) == 0 {
		tb.Fatalf("%s lists no sources", path)
	}
	return names, shapes
}

// fsdpLayout cuts every source along dimension 0 in ceil-chunks and packs the shards
// of one rank back to back into one region.
func fsdpLayout(names []string, shapes [][]int64, rank, world int, grid bool) *Layout {
	l := &Layout{Rank: rank}
	off := int64(0)
	for i, name := range names {
		shape := shapes[i]
		l.Names = append(l.Names, name)
		l.DTypes = append(l.DTypes, BF16)
		l.Shapes = append(l.Shapes, shape...)
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
		for _, d := range shape {
			if grid {
				l.Grid = append(l.Grid, max(1, (d+15)/16))
			}
		}
		step := (shape[0] + int64(world) - 1) / int64(world)
		lo := min(shape[0], int64(rank)*step)
		hi := min(shape[0], lo+step)
		if lo == hi {
			continue
		}
		l.Source = append(l.Source, uint32(i))
		l.Region = append(l.Region, 0)
		l.Offset = append(l.Offset, off)
		l.Box = append(l.Box, lo, hi)
		n := (hi - lo) * 2
		for _, d := range shape[1:] {
			l.Box = append(l.Box, 0, d)
			n *= d
		}
		off += n
	}
	l.Regions = []int64{off}
	return l
}

func kimiSources() (names []string, shapes [][]int64) {
	for layer := 1; layer <= 60; layer++ {
		for e := range 384 {
			for _, p := range []struct {
				name  string
				shape []int64
			}{{"down_proj", []int64{7168, 2048}}, {"gate_proj", []int64{2048, 7168}}, {"up_proj", []int64{2048, 7168}}} {
				names = append(names, fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s.weight", layer, e, p.name))
				shapes = append(shapes, p.shape)
			}
		}
	}
	return names, shapes
}

func TestLayoutSizes(t *testing.T) {
	t.Parallel()
	names, shapes := benchSources(t)
	total, entries := 0, 0
	for rank := range 16 {
		l := fsdpLayout(names, shapes, rank, 16, true)
		b, err := EncodeLayout(l)
		if err != nil {
			t.Fatal(err)
		}
		total, entries = total+len(b), entries+len(l.Source)
	}
	per := float64(total) / float64(entries)
	t.Logf("qwen3-30b-a3b: %d entries, %d bytes, %.2f bytes an entry", entries, total, per)
	if per > 10 {
		t.Errorf("%.2f bytes an entry, want at most 10", per)
	}
	names, shapes = kimiSources()
	b, err := EncodeLayout(fsdpLayout(names, shapes, 7, 256, true))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kimi-k2: %d bytes a rank, %.1f MB in all", len(b), float64(len(b))*256/1e6)
	if len(b)*256 > 20e6 {
		t.Errorf("all tables take %d bytes, want at most 20 MB", len(b)*256)
	}
}

func TestLayoutRoundTrip(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := randomLayout(rng)
		b, err := EncodeLayout(l)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := DecodeLayout(b)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(normal(l), normal(got)) {
			t.Fatalf("seed %d:\n wrote %+v\n  read %+v", seed, l, got)
		}
		again, err := EncodeLayout(got)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("seed %d: a decoded layout encodes differently (%v)", seed, err)
		}
	}
}

// normal makes nil and empty slices compare equal, by formatting.
func normal(l *Layout) string { return fmt.Sprintf("%+v", *l) }

// randomLayout makes a small valid layout with empty, scalar and strided shards.
func randomLayout(rng *rand.Rand) *Layout {
	l := &Layout{Rank: rng.IntN(100), Regions: []int64{1 << 30, 1 << 31}}
	strided, tiled := rng.IntN(2) == 0, rng.IntN(2) == 0
	for i := range rng.IntN(12) {
		l.Names = append(l.Names, fmt.Sprintf("layers.%d.%c·weight", rng.IntN(4), 'a'+i))
		l.DTypes = append(l.DTypes, []DType{BF16, F32, U8, I64}[rng.IntN(4)])
		for range rng.IntN(4) {
			l.Shapes = append(l.Shapes, rng.Int64N(9))
			if tiled {
				l.Grid = append(l.Grid, 1+rng.Int64N(4))
			}
		}
		l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
		for range rng.IntN(3) {
			l.addRandomShard(rng, i, strided)
		}
	}
	return l
}

func (l *Layout) addRandomShard(rng *rand.Rand, source int, strided bool) {
	l.Source = append(l.Source, uint32(source))
	l.Region = append(l.Region, uint32(rng.IntN(2)))
	l.Offset = append(l.Offset, rng.Int64N(1<<20))
	for _, d := range l.Shape(source) {
		lo := rng.Int64N(d + 1)
		l.Box = append(l.Box, lo, lo+rng.Int64N(d-lo+1))
		if strided {
			l.Stride = append(l.Stride, rng.Int64N(100))
		}
	}
}

func TestLayoutSharesCatalogue(t *testing.T) {
	t.Parallel()
	names, shapes := kimiSources()
	names, shapes = names[:3000], shapes[:3000]
	var cache catalogueCache
	var first *Layout
	for rank := range 4 {
		b, err := EncodeLayout(fsdpLayout(names, shapes, rank, 4, true))
		if err != nil {
			t.Fatal(err)
		}
		l, err := decodeLayout(b, &cache)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = l
		}
		if &l.Names[0] != &first.Names[0] {
			t.Errorf("rank %d has its own copy of the names", rank)
		}
	}
}

func TestLayoutRefusesToEncode(t *testing.T) {
	t.Parallel()
	good := func() *Layout {
		return &Layout{
			Regions: []int64{1000}, Names: []string{"a", "b"}, DTypes: []DType{BF16, F32},
			ShapeEnd: []uint32{2, 3}, Shapes: []int64{4, 8, 16},
			Source: []uint32{0, 1}, Region: []uint32{0, 0}, Offset: []int64{0, 64}, Box: []int64{0, 4, 0, 8, 0, 16},
		}
	}
	if _, err := EncodeLayout(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(l *Layout){
		"box beyond shape":     func(l *Layout) { l.Box[1] = 5 },
		"box turned round":     func(l *Layout) { l.Box[0], l.Box[1] = 3, 2 },
		"beyond region":        func(l *Layout) { l.Offset[1] = 937 },
		"offset overflow":      func(l *Layout) { l.Offset[1] = 1<<63 - 1 },
		"stride overflow":      func(l *Layout) { l.Stride = []int64{1 << 62, 1 << 62, 1} },
		"no such region":       func(l *Layout) { l.Region[0] = 1 },
		"no such source":       func(l *Layout) { l.Source[0] = 2 },
		"same name":            func(l *Layout) { l.Names[1] = "a" },
		"nameless":             func(l *Layout) { l.Names[1] = "" },
		"sub-byte type":        func(l *Layout) { l.DTypes[0] = F4 },
		"unknown type":         func(l *Layout) { l.DTypes[0] = 99 },
		"too few box values":   func(l *Layout) { l.Box = l.Box[:4] },
		"too many box values":  func(l *Layout) { l.Box = append(l.Box, 1) },
		"grid of another size": func(l *Layout) { l.Grid = []int64{1} },
		"zero grid":            func(l *Layout) { l.Grid = []int64{1, 0, 1} },
		"negative region":      func(l *Layout) { l.Regions[0] = -1 },
		"lonely group":         func(l *Layout) { l.Groups = []Group{{GroupAlias, []string{"a"}}} },
		"rank":                 func(l *Layout) { l.Rank = MaxWorld },
	} {
		l := good()
		spoil(l)
		if b, err := EncodeLayout(l); !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %d bytes, error %v", name, len(b), err)
		}
	}
}

func BenchmarkDecodeLayout(b *testing.B) {
	names, shapes := kimiSources()
	blob, err := EncodeLayout(fsdpLayout(names, shapes, 7, 256, true))
	if err != nil {
		b.Fatal(err)
	}
	for name, cache := range map[string]*catalogueCache{"cold": nil, "known-sources": {}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeLayout(blob, cache); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(names))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mentries/s")
		})
	}
}

func BenchmarkEncodeLayout(b *testing.B) {
	names, shapes := kimiSources()
	l := fsdpLayout(names, shapes, 7, 256, true)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeLayout(l); err != nil {
			b.Fatal(err)
		}
	}
}

// TestLayoutDecodesInFewAllocations: columns are decoded whole, so that the number of
// allocations does not depend on the number of entries.
func TestLayoutDecodesInFewAllocations(t *testing.T) {
	names, shapes := kimiSources()
	blob, err := EncodeLayout(fsdpLayout(names, shapes, 7, 256, true))
	if err != nil {
		t.Fatal(err)
	}
	cache := &catalogueCache{}
	for what, c := range map[string]*catalogueCache{"cold": nil, "sources known": cache} {
		n := testing.AllocsPerRun(3, func() {
			if _, err := decodeLayout(blob, c); err != nil {
				t.Error(err)
			}
		})
		t.Logf("%s: %.0f allocations for %d entries", what, n, len(names))
		if n > 150 {
			t.Errorf("%s: %.0f allocations, want at most 150", what, n)
		}
	}
}

// BenchmarkDecodeQwen decodes the layouts of all 16 ranks of the planner's benchmark
// as a receiver does that has just started: one after the other, on one core.
func BenchmarkDecodeQwen(b *testing.B) {
	names, shapes := benchSources(b)
	blobs := make([][]byte, 16)
	for rank := range blobs {
		var err error
		if blobs[rank], err = EncodeLayout(fsdpLayout(names, shapes, rank, len(blobs), true)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		cache := &catalogueCache{}
		for _, blob := range blobs {
			if _, err := decodeLayout(blob, cache); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// TestBoxesAreExpandedAsRowByRow compares with the plain way: expand each row, then add.
func TestBoxesAreExpandedAsRowByRow(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 100 {
		var w wireTuples
		var dict [][]int64
		for range 1 + rng.IntN(5) {
			tuple := make([]int64, 2*rng.IntN(MaxDims+1))
			for i := range tuple {
				tuple[i] = rng.Int64N(1000)
			}
			dict = append(dict, tuple)
			w.Lens, w.Values = append(w.Lens, byte(len(tuple))), columns.AppendPlain(w.Values, tuple)
		}
		var index []uint32
		var want []int64
		for range rng.IntN(30) {
			x := rng.IntN(len(dict))
			index = append(index, uint32(x))
			for d := 0; d < len(dict[x]); d += 2 {
				want = append(want, dict[x][d], dict[x][d]+dict[x][d+1])
			}
		}
		w.Index = columns.AppendDeltas(nil, index)
		got, err := readTuples(w, len(index), MaxDim)
		if err == nil {
			err = got.toBounds()
		}
		if err != nil || !slices.Equal(got.expand(), want) {
			t.Fatalf("%v by %v: %v, want %v (%v)", dict, index, got.expand(), want, err)
		}
	}
	odd := wireTuples{Index: []byte{0}, Lens: []byte{3}, Values: []byte{1, 2, 3}}
	if got, err := readTuples(odd, 1, MaxDim); err != nil || !errors.Is(got.toBounds(), columns.ErrMalformed) {
		t.Errorf("three values are taken for pairs (%v)", err)
	}
}
