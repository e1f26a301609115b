package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// shared returns the path of a file beside the repository, and skips the test where there is none.
func shared(t testing.TB, elem ...string) string {
	t.Helper()
	name := filepath.Join(append([]string{"..", "..", "..", "shared"}, elem...)...)
	if _, err := os.Stat(name); err != nil {
		t.Skipf("skipped: %s is not there", name)
	}
	return name
}

// qwen returns the tables and the destination of the Qwen3-30B-A3B benchmark (16 FSDP ranks, tensor parallel 4).
func qwen(b testing.TB) ([]*Layout, Dest) {
	raw, err := os.ReadFile(shared(b, "bench", "qwen3_30b_a3b.tp4.rank1.capture.json.gz"))
	if err != nil {
		b.Fatal(err)
	}
	c, err := DecodeCapture(raw)
	if err != nil {
		b.Fatal(err)
	}
	d, err := c.Dest(c.Cases[0].TP, c.Cases[0].Rank, c.Cases[0].EP)
	if err != nil {
		b.Fatal(err)
	}
	d.LayOut(0)
	written := make([]int64, len(d.Params))
	for i := range d.Copies {
		n := int64(1)
		for _, s := range d.Copies[i].Shape {
			n *= s
		}
		written[d.Copies[i].Param] += n
	}
	for i := range d.Params { // the capture spreads q, k and v over two parameters
		d.Params[i].Padded = written[i] < d.Params[i].nelems()
	}
	const world = 16
	var layouts []*Layout
	for r := range world {
		l := &Layout{Rank: r}
		at := int64(0)
		for i := range c.Sources {
			s := &c.Sources[i]
			l.Names = append(l.Names, s.Name)
			l.DTypes = append(l.DTypes, s.DType)
			l.Shapes = append(l.Shapes, s.Shape...)
			l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
			each := (s.Shape[0] + world - 1) / world
			lo, hi := min(int64(r)*each, s.Shape[0]), min(int64(r+1)*each, s.Shape[0])
			l.Source = append(l.Source, uint32(i))
			l.Region = append(l.Region, 0)
			l.Offset = append(l.Offset, at)
			l.Box = append(l.Box, lo, hi)
			n := (hi - lo) * s.DType.Size()
			for _, k := range s.Shape[1:] {
				l.Box = append(l.Box, 0, k)
				n *= k
			}
			at += n
		}
		l.Regions = []int64{at}
		layouts = append(layouts, l)
	}
	return layouts, d
}

func BenchmarkMergeQwen(b *testing.B) {
	layouts, _ := qwen(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Merge(layouts); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlanQwen(b *testing.B) {
	layouts, d := qwen(b)
	t, err := Merge(layouts)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(t, []Dest{d}, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlanQwenColumnBlocks(b *testing.B) {
	layouts, d := qwen(b)
	for _, l := range layouts {
		inColumns(l)
	}
	t, err := Merge(layouts)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(t, []Dest{d}, Options{Costs: CostsFlat}); err != nil {
			b.Fatal(err)
		}
	}
}

// inColumns lays each 2-d shard out in sixteen blocks of columns.
func inColumns(l *Layout) {
	old := *l
	l.Source, l.Region, l.Offset, l.Box = nil, nil, nil, nil
	at, offset := 0, int64(0)
	for k, s := range old.Source {
		shape := old.shape(int(s))
		b := old.Box[at : at+2*len(shape)]
		at += 2 * len(shape)
		n := int64(1)
		if len(shape) == 2 && shape[1]%16 == 0 {
			n = 16
		}
		for c := range n {
			part := append([]int64(nil), b...)
			nbytes := old.DTypes[s].Size() * (part[1] - part[0])
			if n > 1 {
				part[2], part[3] = c*shape[1]/n, (c+1)*shape[1]/n
				nbytes *= shape[1] / n
			}
			l.Source = append(l.Source, s)
			l.Region = append(l.Region, old.Region[k])
			l.Offset = append(l.Offset, offset)
			l.Box = append(l.Box, part...)
			offset += nbytes
		}
	}
}

// BenchmarkPlanUneven plans sources of which no two are cut alike, so that nothing is worked out only once.
func BenchmarkPlanUneven(b *testing.B) {
	const sources, ranks, rows, cols = 2000, 16, 2048, 768
	layouts := make([]*Layout, ranks)
	for r := range layouts {
		l := &Layout{Rank: r}
		for i := range sources {
			l.Names = append(l.Names, fmt.Sprintf("w%d", i))
			l.DTypes = append(l.DTypes, BF16)
			l.Shapes = append(l.Shapes, rows, cols)
			l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
			cut := func(r int) int64 {
				if r == 0 {
					return 0
				}
				return int64(r)*rows/ranks + int64(uint32(i*2654435761)>>r%127)
			}
			l.Source = append(l.Source, uint32(i))
			l.Region = append(l.Region, 0)
			l.Offset = append(l.Offset, int64(i)*rows*cols*2)
			hi := cut(r + 1)
			if r == ranks-1 {
				hi = rows
			}
			l.Box = append(l.Box, cut(r), hi, 0, cols)
		}
		l.Regions = []int64{sources * rows * cols * 2}
		layouts[r] = l
	}
	t, err := Merge(layouts)
	if err != nil {
		b.Fatal(err)
	}
	d := Dest{}
	for i := range sources {
		d.Params = append(d.Params, Param{Name: fmt.Sprintf("w%d", i), DType: BF16, Shape: []int64{rows, cols / 4}})
		d.Copies = append(d.Copies, Copy{
			Source: fmt.Sprintf("w%d", i), Param: i, Shape: []int64{rows, cols / 4}, Stride: []int64{cols / 4, 1},
			Ops: []Op{{Name: "narrow", Args: []Arg{{Int: 1}, {Int: cols / 4}, {Int: cols / 4}}}},
		})
	}
	d.LayOut(0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(t, []Dest{d}, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProofQwen is the part of BenchmarkPlanQwen that checks the finished segments.
func BenchmarkProofQwen(b *testing.B) {
	layouts, d := qwen(b)
	t, err := Merge(layouts)
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(t, []Dest{d}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.prove(p.g); err != nil {
			b.Fatal(err)
		}
	}
}
