package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

var allTypes = []safetensors.DType{
	safetensors.Bool, safetensors.U8, safetensors.I8, safetensors.I16, safetensors.U16, safetensors.I32, safetensors.U32,
	safetensors.I64, safetensors.U64, safetensors.F16, safetensors.BF16, safetensors.F32, safetensors.F64, safetensors.C64,
	safetensors.F8E4M3, safetensors.F8E5M2, safetensors.F8E4M3FNUZ, safetensors.F8E5M2FNUZ, safetensors.F8E8M0,
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// mutateOne is Mutate for one element, said without words: the twin of the fast path.
func mutateOne(e []byte, dtype safetensors.DType, name string, index int64, seed, version uint64) {
	for k := range e {
		at := uint64(index*dtype.Size()) + uint64(k)
		lane := at % 8 * 8
		f := flips[dtype]
		if f.sel != 0 && e[k]&byte(f.sel) == byte(f.val) {
			continue
		}
		e[k] ^= byte(mix(streamKey(name, seed, version)+at/8)>>lane) & byte(f.lanes>>lane)
	}
}

func TestMutateAgainstTwin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, dtype := range allTypes {
		size := int(dtype.Size())
		for range 60 {
			n, first, version := r.IntN(40), r.Int64N(50), uint64(r.IntN(3)+1)
			got := random(r, n*size)
			want := slices.Clone(got)
			Mutate(got, dtype, "w", first, 9, version)
			for i := range n {
				mutateOne(want[i*size:(i+1)*size], dtype, "w", first+int64(i), 9, version)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%s, %d elements from %d, version %d:\n% x\n% x", dtype, n, first, version, got, want)
			}
		}
	}
}

func TestMutateInverseAndIdentity(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for _, dtype := range allTypes {
		before := random(r, 64*int(dtype.Size()))
		b := slices.Clone(before)
		Mutate(b, dtype, "w", 5, 1, 0)
		if !bytes.Equal(b, before) {
			t.Errorf("%s: version 0 changed values", dtype)
		}
		Mutate(b, dtype, "w", 5, 1, 4)
		if bytes.Equal(b, before) {
			t.Errorf("%s: version 4 changed nothing", dtype)
		}
		Mutate(b, dtype, "w", 5, 1, 4)
		if !bytes.Equal(b, before) {
			t.Errorf("%s: not its own inverse", dtype)
		}
	}
}

// nan says whether an element is not a finite number.
func nan(dtype safetensors.DType, e []byte) bool {
	switch dtype {
	case safetensors.F16:
		return binary.LittleEndian.Uint16(e)&0x7c00 == 0x7c00
	case safetensors.BF16:
		return binary.LittleEndian.Uint16(e)&0x7f80 == 0x7f80
	case safetensors.F8E4M3:
		return e[0]&0x7f == 0x7f
	case safetensors.F8E5M2:
		return e[0]&0x7c == 0x7c
	case safetensors.F8E4M3FNUZ, safetensors.F8E5M2FNUZ:
		return e[0] == 0x80
	case safetensors.F8E8M0:
		return e[0] == 0xff
	}
	return false
}

// Every 8- and 16-bit pattern under several hashes: finite stays finite.
func TestMutateFinite(t *testing.T) {
	t.Parallel()
	for _, dtype := range allTypes {
		size := int(dtype.Size())
		if size > 2 {
			continue
		}
		patterns := make([]byte, 0, size<<(8*size))
		for x := range 1 << (8 * size) {
			patterns = append(patterns, binary.LittleEndian.AppendUint16(nil, uint16(x))[:size]...)
		}
		for version := range uint64(50) {
			b := slices.Clone(patterns)
			Mutate(b, dtype, "w", int64(version*3), 1, version)
			for at := 0; at < len(b); at += size {
				if was := patterns[at : at+size]; nan(dtype, b[at:at+size]) && !nan(dtype, was) {
					t.Fatalf("%s: % x became % x", dtype, was, b[at:at+size])
				}
			}
		}
	}
}

func TestMutateWideFloatsAndBools(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	exponents := map[safetensors.DType]uint64{
		safetensors.F32: 0xff80_0000_ff80_0000,
		safetensors.C64: 0xff80_0000_ff80_0000, safetensors.F64: 0xfff0_0000_0000_0000, safetensors.Bool: 0xfefe_fefe_fefe_fefe,
	}
	for dtype, kept := range exponents {
		before := random(r, 800)
		b := slices.Clone(before)
		Mutate(b, dtype, "w", 0, 1, 1)
		for at := 0; at < len(b); at += 8 {
			if change := binary.LittleEndian.Uint64(b[at:]) ^ binary.LittleEndian.Uint64(before[at:]); change&kept != 0 {
				t.Fatalf("%s: bits %x changed", dtype, change&kept)
			}
		}
	}
}

// Most elements change between any two versions, and streams of names, seeds and versions differ.
func TestMutateChangesMost(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, s := range []struct {
		name          string
		seed, version uint64
	}{{"a", 0, 1}, {"a", 0, 2}, {"a", 0, 3}, {"a", 1, 1}, {"b", 0, 1}, {"b", 1, 0}} {
		b := make([]byte, 4096)
		Mutate(b, safetensors.BF16, s.name, 0, s.seed, s.version)
		if other, twice := seen[string(b)]; twice {
			t.Errorf("%v has the bytes of %s", s, other)
		}
		for was, of := range seen {
			same := 0
			for at := 0; at < len(b); at += 2 {
				if b[at] == was[at] {
					same++
				}
			}
			if same > 2048/128*3 {
				t.Errorf("%v and %s share %d of 2048 elements", s, of, same)
			}
		}
		seen[string(b)] = fmt.Sprint(s)
	}
}

// Cutting a tensor into boxes changes nothing.
func TestMutateBox(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	shapes := [][]int64{{}, {1}, {13}, {5, 7}, {3, 4, 5}, {2, 1, 3, 4}, {4, 0}}
	for _, shape := range shapes {
		for _, dtype := range []safetensors.DType{safetensors.U8, safetensors.BF16, safetensors.F32, safetensors.F8E4M3, safetensors.F64} {
			size := dtype.Size()
			nelems, _ := safetensors.Count(shape)
			base := random(r, int(nelems*size))
			whole := slices.Clone(base)
			Mutate(whole, dtype, "w", 0, 2, 3)
			for range 20 {
				lo, hi := randomBox(r, shape)
				got := cutBox(base, shape, lo, hi, size)
				MutateBox(got, dtype, "w", shape, lo, hi, 2, 3)
				if want := cutBox(whole, shape, lo, hi, size); !bytes.Equal(got, want) {
					t.Fatalf("%s %v box %v %v:\n% x\n% x", dtype, shape, lo, hi, got, want)
				}
			}
		}
	}
}

func randomBox(r *rand.Rand, shape []int64) (lo, hi []int64) {
	for _, dim := range shape {
		a, b := r.Int64N(dim+1), r.Int64N(dim+1)
		if r.IntN(2) == 0 {
			a, b = 0, dim
		}
		lo, hi = append(lo, min(a, b)), append(hi, max(a, b))
	}
	return lo, hi
}

// cutBox copies a box out of a packed tensor, element by element.
func cutBox(b []byte, shape, lo, hi []int64, size int64) []byte {
	out := []byte{}
	nelems, _ := safetensors.Count(shape)
	for i := range nelems {
		inside, rest := true, i
		for d := len(shape) - 1; d >= 0; d-- {
			at := rest % shape[d]
			rest /= shape[d]
			inside = inside && at >= lo[d] && at < hi[d]
		}
		if inside {
			out = append(out, b[i*size:(i+1)*size]...)
		}
	}
	return out
}

// The values of a version are part of what publishers and proofs of different builds must agree on.
func TestMutateGolden(t *testing.T) {
	t.Parallel()
	b := []byte{0x80, 0x3f, 0x80, 0x3f, 0x80, 0x3f, 0x80, 0x3f, 0x80, 0x3f} // five times 1.0
	Mutate(b, safetensors.BF16, "model.norm.weight", 3, 1, 2)
	if got, want := fmt.Sprintf("% x", b), "c3 3f fc 3f b6 3f e1 3f 91 3f"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMutateRefusesHalfElements(t *testing.T) {
	t.Parallel()
	for _, dtype := range []safetensors.DType{safetensors.BF16, safetensors.F4} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: three bytes were accepted", dtype)
				}
			}()
			Mutate(make([]byte, 3), dtype, "w", 0, 1, 1)
		}()
	}
}

func BenchmarkMutate(b *testing.B) {
	buffer := make([]byte, 8<<20)
	for _, dtype := range []safetensors.DType{safetensors.BF16, safetensors.F8E4M3} {
		b.Run(string(dtype), func(b *testing.B) {
			b.SetBytes(int64(len(buffer)))
			b.ReportAllocs()
			for b.Loop() {
				Mutate(buffer, dtype, "w", 1, 1, 1)
			}
		})
	}
}
