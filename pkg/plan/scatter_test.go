package plan

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/plan/cast"
)

// TestScatter compares scatters of every element size, in any order of dimensions, with moving one
// element after the other.
func TestScatter(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(31, 32))
	for range 3000 {
		dt := []DType{U8, BF16, F32, F64}[r.IntN(4)]
		n := r.IntN(4)
		s := Scatter{Src: r.Int64N(5) * 8, Dst: r.Int64N(5) * 8, From: dt, To: dt}
		order, step := r.Perm(n), dt.Size()
		s.Shape, s.SrcStride, s.DstStride = make([]int64, n), make([]int64, n), make([]int64, n)
		for d := range n {
			s.Shape[d] = 1 + r.Int64N(5)
			s.SrcStride[d] = step
			step *= s.Shape[d]
		}
		step = dt.Size()
		for _, d := range order {
			s.DstStride[d] = step
			step *= s.Shape[d] + r.Int64N(2)
		}
		src := make([]byte, 4000)
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		got, want := make([]byte, 6000), make([]byte, 6000)
		if err := s.Do(got, src); err != nil {
			t.Fatal(err)
		}
		dumbScatter(&s, want, src)
		if !bytes.Equal(got, want) {
			t.Fatalf("%s gives other bytes", s.String())
		}
	}
}

func dumbScatter(s *Scatter, dst, src []byte) {
	var move func(d int, from, to int64)
	move = func(d int, from, to int64) {
		if d == len(s.Shape) {
			copy(dst[to:to+s.To.Size()], src[from:])
			return
		}
		for i := range s.Shape[d] {
			move(d+1, from+i*s.SrcStride[d], to+i*s.DstStride[d])
		}
	}
	move(0, s.Src, s.Dst)
}

// TestScatterStaysInside: a region that leaves a buffer is refused before anything is written.
func TestScatterStaysInside(t *testing.T) {
	t.Parallel()
	good := Scatter{Src: 4, Dst: 2, From: BF16, To: BF16, Shape: []int64{3, 2}, SrcStride: []int64{4, 2}, DstStride: []int64{2, 6}}
	dst, src := make([]byte, 14), make([]byte, 16)
	if err := good.Do(dst, src); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(s *Scatter){
		"source too far":       func(s *Scatter) { s.Src = 5 },
		"source before":        func(s *Scatter) { s.Src = -1 },
		"destination too far":  func(s *Scatter) { s.Dst = 3 },
		"destination before":   func(s *Scatter) { s.Dst = -2 },
		"more than there is":   func(s *Scatter) { s.Shape = []int64{4, 2} },
		"integers as floats":   func(s *Scatter) { s.From = I16 },
		"wider than the arena": func(s *Scatter) { s.To = F64 },
	} {
		s := good
		spoil(&s)
		clear(dst)
		src[4] = 1
		if err := s.Do(dst, src); err == nil || !bytes.Equal(dst, make([]byte, 14)) {
			t.Errorf("%s: %v, %v", name, err, dst)
		}
	}
	none := good
	none.Shape, none.Src = []int64{0, 2}, 1000
	if err := none.Do(dst, src); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
}

// TestScatterOverflow: by default a value beyond float8_e4m3fn stops the scatter and is named.
func TestScatterOverflow(t *testing.T) {
	t.Parallel()
	s := Scatter{From: BF16, To: F8E4M3, Shape: []int64{2}, SrcStride: []int64{2}, DstStride: []int64{1}}
	src, dst := []byte{0x80, 0x3f, 0x80, 0x47}, make([]byte, 2) // 1 and 65536
	var over *cast.OverflowError
	if err := s.Do(dst, src); !errors.As(err, &over) || over.Value != 65536 || !strings.Contains(err.Error(), "65536") {
		t.Errorf("got %v", err)
	}
	for rule, want := range map[Overflow]byte{OverflowSaturates: 0x7E, OverflowNaN: 0x7F} {
		s.Overflow = rule
		if err := s.Do(dst, src); err != nil || dst[0] != 0x38 || dst[1] != want {
			t.Errorf("rule %d: %x, %v", rule, dst, err)
		}
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dt    DType
		value float64
		want  string // bytes, or what the error says
	}{
		{BF16, 1, "\x80\x3f"},
		{F32, -0.5, "\x00\x00\x00\xbf"},
		{I64, -1, "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{U64, 1 << 63, "\x00\x00\x00\x00\x00\x00\x00\x80"},
		{U8, 255, "\xff"},
		{Bool, 1, "\x01"},
		{C64, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"},
		{F8E8M0, 0, "\x00"},
		{U8, 256, "does not hold 256"},
		{I8, 0.5, "does not hold 0.5"},
		{BF16, 0.1, "\xcd\x3d"}, // the nearest, as torch
		{F32, 0.1, "\xcd\xcc\xcc\x3d"},
		{F16, 65519, "\xff\x7b"},
		{F16, 1e-9, "\x00\x00"},
		{F64, math.Inf(-1), "\x00\x00\x00\x00\x00\x00\xf0\xff"},
		{BF16, math.Inf(1), "\x80\x7f"},
		{F8E5M2, math.Inf(-1), "\xfc"},
		{F16, math.NaN(), "\x00\x7e"},
		{F8E4M3, math.NaN(), "\x7f"},
		{F8E4M3, -448, "\xfe"},
		{F8E4M3FNUZ, math.NaN(), "\x80"},
		{F16, 65520, "does not hold 65520"},
		{F32, 1e39, "does not hold 1e+39"},
		{F8E4M3, 500, "does not hold 500"},
		{F8E4M3, math.Inf(1), "does not hold +Inf"},
		{F8E5M2FNUZ, math.Inf(1), "does not hold +Inf"},
		{I32, math.NaN(), "does not hold NaN"},
		{U64, math.Inf(1), "does not hold +Inf"},
		{Bool, 2, "does not hold 2"},
		{C64, 1, "does not hold 1"},
	} {
		got, err := c.dt.constant(c.value)
		if err != nil && !strings.Contains(err.Error(), c.want) || err == nil && string(got) != c.want {
			t.Errorf("%s %g: got %x, %v; expected %x", c.dt, c.value, got, err, c.want)
		}
	}
	f := FillOp{Off: 1, Shape: []int64{2, 2}, Stride: []int64{5, 2}, Pattern: []byte{7}}
	b := make([]byte, 9)
	if err := f.Do(b); err != nil || !bytes.Equal(b, []byte{0, 7, 0, 7, 0, 0, 7, 0, 7}) {
		t.Errorf("got %v, %v", b, err)
	}
	if err := f.Do(b[:8]); err == nil {
		t.Error("a fill beyond the arena was done")
	}
}

// TestBridged: what a pattern reads with gaps holds every element where offsetOf says.
func TestBridged(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(33, 34))
	for range 3000 {
		dims := make([]pdim, r.IntN(4))
		step := int64(2)
		for i := len(dims) - 1; i >= 0; i-- {
			dims[i] = pdim{n: 2 + r.Int64N(3), src: step, dst: step}
			step = step*dims[i].n + 2*r.Int64N(3)
		}
		p := newPattern(10, 0, 2, append([]pdim(nil), dims...))
		mem := make([]byte, 10+p.span(0))
		for i := range mem {
			mem[i] = byte(r.Uint32())
		}
		for k := 0; k <= len(p.dims); k++ {
			if !p.bridgeable(k) {
				continue
			}
			q := p.bridged(k)
			staging := make([]byte, q.nbytes())
			q.each(func(src, dst int64) bool { copy(staging[dst:dst+q.run], mem[src:]); return true })
			out := make([]int64, len(dims))
			off, ok := q.offsetOf(10, dims, out)
			if !ok {
				t.Fatalf("%+v bridged at %d: elements are not found", p, k)
			}
			back := pattern{src: 10, dst: off, run: 2}
			for i, d := range dims {
				back.dims = append(back.dims, pdim{n: d.n, src: d.src, dst: out[i]})
			}
			back.each(func(src, at int64) bool {
				if !bytes.Equal(mem[src:src+2], staging[at:at+2]) {
					t.Fatalf("%+v bridged at %d: the element at %d is not at %d", p, k, src, at)
				}
				return true
			})
		}
	}
}

// TestPartition: overlapping boxes are cut so that each element has exactly one owner, who holds it.
func TestPartition(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(35, 36))
	for range 2000 {
		slots := make([]slot, 1+r.IntN(6))
		for i := range slots {
			b := &slots[i].box
			b.n = 2
			for d := range 2 {
				b.lo[d] = r.Int64N(6)
				b.hi[d] = b.lo[d] + 1 + r.Int64N(6-b.lo[d])
			}
			slots[i].origin = b.lo
			slots[i].from = []holder{{rank: uint32(i)}}
		}
		var held [6][6]int
		for i := range slots {
			b := &slots[i].box
			for y := b.lo[0]; y < b.hi[0]; y++ {
				for x := b.lo[1]; x < b.hi[1]; x++ {
					held[y][x] |= 1 << i
				}
			}
		}
		var owned [6][6]int
		parts, err := partition(slots)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range parts {
			for y := s.box.lo[0]; y < s.box.hi[0]; y++ {
				for x := s.box.lo[1]; x < s.box.hi[1]; x++ {
					owned[y][x]++
					if held[y][x]>>s.from[0].rank&1 == 0 {
						t.Fatalf("slot %d owns (%d, %d) and does not hold it", s.from[0].rank, y, x)
					}
				}
			}
		}
		for y := range held {
			for x := range held[y] {
				if (held[y][x] != 0) != (owned[y][x] == 1) {
					t.Fatalf("(%d, %d) is held by %b and owned %d times", y, x, held[y][x], owned[y][x])
				}
			}
		}
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	var rs rows
	seen := map[string]uint32{}
	r := rand.New(rand.NewPCG(37, 38))
	for range 5000 {
		row := make([]int64, r.IntN(4))
		for i := range row {
			row[i] = r.Int64N(12)
		}
		id, fresh := rs.id(row)
		key := boxString(append(append([]int64{int64(len(row))}, row...), 0, 0, 0, 0))
		want, known := seen[key]
		if fresh == known || known && id != want || len(rs.row(id)) != len(row) {
			t.Fatalf("row %v: number %d (new: %t), known: %t as %d", row, id, fresh, known, want)
		}
		seen[key] = id
	}
}
