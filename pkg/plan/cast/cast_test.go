package cast

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

var all = []*Format{F64, F32, F16, BF16, F8E4M3, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ}

// TestNearest is the dumb twin: of all values that a format has, the nearest one, and the even of two.
func TestNearest(t *testing.T) {
	t.Parallel()
	for _, f := range all[2:] {
		values := f.values()
		for _, u := range samples(3000) {
			x := math.Float32frombits(u)
			if x != x || math.Abs(float64(x)) > float64(values[len(values)-1]) {
				continue
			}
			got, _ := f.narrow(u, Saturates)
			want := nearest(values, math.Abs(float64(x)))
			if sign := uint64(u>>31) << (f.bits - 1); want != 0 || f.special != fnuz {
				want |= sign
			}
			if got != want {
				t.Fatalf("%s: %g (%#x) gives %#x, the nearest is %#x", f.Name, x, u, got, want)
			}
		}
	}
}

// values lists the finite non-negative values of a format, by pattern.
func (f *Format) values() []float64 {
	var out []float64
	for x := range uint64(1) << (f.bits - 1) {
		v := math.Float32frombits(f.widen(x))
		if v != v || math.IsInf(float64(v), 0) {
			break
		}
		out = append(out, float64(v))
	}
	return out
}

func nearest(values []float64, x float64) uint64 {
	lo, hi := 0, len(values)-1
	for lo < hi {
		mid := (lo + hi) / 2
		if values[mid] < x {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo > 0 {
		below, above := x-values[lo-1], values[lo]-x
		if below < above || below == above && (lo-1)%2 == 0 {
			lo--
		}
	}
	return uint64(lo)
}

// samples are float32 patterns, many of them near what the narrow formats round at.
func samples(n int) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	out := []uint32{0, 1 << 31, 1, 0x80000001}
	for _, f := range all[2:] {
		for range n {
			x := f.widen(r.Uint64() & (1<<f.bits - 1))
			out = append(out, x, x+1, x-1, x+1<<(22-f.mantissa), x+1<<(22-f.mantissa)+1, x+1<<(22-f.mantissa)-1)
		}
	}
	return out
}

// TestRoundTrip wants every value back from each format that Lossless says keeps it.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, from := range all[2:] {
		for _, to := range all {
			if !Lossless(from, to) {
				continue
			}
			for x := range uint64(1) << from.bits {
				y, over := to.cast(from, x, Fails)
				back, _ := from.cast(to, y, Fails)
				if nan := from.isNaN(x, x&^(1<<(from.bits-1))); over || !nan && back != x {
					t.Fatalf("%s %#x to %s %#x and back: %#x", from.Name, x, to.Name, y, back)
				}
			}
		}
	}
}

// TestOverflow holds the rules of values beyond the range.
func TestOverflow(t *testing.T) {
	t.Parallel()
	inf := math.Float32bits(float32(math.Inf(-1)))
	big := math.Float32bits(1e30)
	for _, c := range []struct {
		f    *Format
		u    uint32
		rule Overflow
		want uint64
		over bool
	}{
		{F16, big, Fails, 0x7C00, false},
		{BF16, 0x7F7FFFFF, Fails, 0x7F80, false},
		{F8E5M2, inf, Fails, 0xFC, false},
		{F8E4M3, inf, Saturates, 0xFE, false},
		{F8E4M3, big, ToNaN, 0x7F, false},
		{F8E4M3, big, Fails, 0x7F, true},
		{F8E4M3, math.Float32bits(464), Fails, 0x7E, false},
		{F8E4M3, math.Float32bits(465), Fails, 0x7F, true},
		{F8E4M3FNUZ, inf, Fails, 0x80, false},
		{F8E5M2FNUZ, 1 << 31, Fails, 0, false},
	} {
		if got, over := c.f.narrow(c.u, c.rule); got != c.want || over != c.over {
			t.Errorf("%s of %g: got %#x, %t; expected %#x, %t", c.f.Name, math.Float32frombits(c.u), got, over, c.want, c.over)
		}
	}
}

// TestConvertStrided compares rows with strides, in each direction, with casting one element after the other.
func TestConvertStrided(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for _, from := range all {
		for _, to := range all {
			const n = 200
			ss, ds := from.Size()+3, to.Size()+2
			src, dst := make([]byte, n*ss), make([]byte, n*ds)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			if err := Convert(dst, src, n, ds, ss, from, to, Saturates); err != nil {
				t.Fatal(err)
			}
			for i := range int64(n) {
				want, _ := to.cast(from, load(src[i*ss:], from.bits), Saturates)
				if got := load(dst[i*ds:], to.bits); got != want {
					t.Fatalf("%s to %s: element %d: got %#x, expected %#x", from.Name, to.Name, i, got, want)
				}
			}
		}
	}
}

func TestConvertFails(t *testing.T) {
	t.Parallel()
	src := make([]byte, 8)
	store(src[4:], 32, uint64(math.Float32bits(1000)))
	dst := make([]byte, 2)
	var e *OverflowError
	if err := Convert(dst, src, 2, 1, 4, F32, F8E4M3, Fails); !errors.As(err, &e) || e.Index != 1 || e.Value != 1000 {
		t.Errorf("got %v, expected element 1, value 1000", err)
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v     float64
		f     *Format
		want  uint64
		holds bool
	}{
		{0, BF16, 0, true},
		{1, F16, 0x3C00, true},
		{0.1, BF16, 0x3DCD, true}, // the nearest
		{-2, F64, 0xC000000000000000, true},
		{math.Inf(-1), F16, 0xFC00, true},
		{math.NaN(), F8E4M3FNUZ, 0x80, true},
		{1000, F8E4M3, 0x7F, false},
		{math.Inf(1), F8E4M3, 0x7F, false}, // it has none
		{math.Inf(1), F8E4M3FNUZ, 0x80, false},
		{1e39, F32, 0x7F800000, false},
		{1e6, F8E5M2, 0x7C, false},
	} {
		b, holds := Encode(c.v, c.f)
		if got := load(b, c.f.bits); got != c.want || holds != c.holds {
			t.Errorf("%g as %s: got %#x, %t; expected %#x, %t", c.v, c.f.Name, got, holds, c.want, c.holds)
		}
	}
}

func BenchmarkConvert(b *testing.B) {
	for _, c := range [][2]*Format{{F32, BF16}, {BF16, F32}, {F16, F32}, {F8E4M3, BF16}} {
		b.Run(c[0].Name+" to "+c[1].Name, func(b *testing.B) {
			const n = 1 << 16
			src, dst := make([]byte, n*c[0].Size()), make([]byte, n*c[1].Size())
			b.SetBytes(n * c[0].Size())
			for b.Loop() {
				if err := Convert(dst, src, n, c[1].Size(), c[0].Size(), c[0], c[1], Fails); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
