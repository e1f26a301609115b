package proof

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/safetensors"
)

// golden decodes a file of the shared goldens, made by running torch.
func golden(t *testing.T, name string, into any) {
	t.Helper()
	f, err := os.Open("../../../shared/golden/" + name)
	if err != nil {
		t.Skipf("needs the shared goldens: %v", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(r).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// planFile is the part of schema refit.golden.plan.v1 that says what a view is.
type planFile struct {
	Cases []struct {
		ID      int
		Sources []struct {
			Name        string
			GlobalShape []int64 `json:"global_shape"`
		}
		Copies []struct {
			Src      string
			Ops      []json.RawMessage
			PureView bool `json:"pure_view"`
			Expect   string
			View     *struct {
				Offset        int64
				Shape, Stride []int64
			}
		}
	}
}

// torch's strided views, written out, are the index lists that the operations make.
func TestGoldenViews(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plan_cases.json.gz", "plan_cases2.json.gz"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var file planFile
			golden(t, name, &file)
			compared := 0
			for _, c := range file.Cases {
				shapes := map[string][]int64{}
				for _, s := range c.Sources {
					shapes[s.Name] = s.GlobalShape
				}
				for _, x := range c.Copies {
					ops, ok := decodeOps(x.Ops)
					if !ok || !x.PureView || x.View == nil || x.Expect == "view_or_refused" {
						continue
					}
					got, err := replay(shapes[x.Src], ops)
					if err != nil {
						t.Errorf("case %d: %v: %v", c.ID, ops, err)
						continue
					}
					compareView(t, c.ID, got, x.View.Offset, x.View.Shape, x.View.Stride)
					compared++
				}
			}
			if compared < 700 {
				t.Errorf("only %d views compared", compared)
			}
		})
	}
}

func decodeOps(raw []json.RawMessage) ([]capturegen.Op, bool) {
	ops := make([]capturegen.Op, len(raw))
	for i := range raw {
		if json.Unmarshal(raw[i], &ops[i]) != nil {
			return nil, false
		}
	}
	return ops, true
}

func compareView(t *testing.T, id int, got view, offset int64, shape, stride []int64) {
	t.Helper()
	if !equal(got.shape, shape) {
		t.Errorf("case %d: shape %v, torch has %v", id, got.shape, shape)
		return
	}
	for i, at := range got.index {
		want, rest := offset, int64(i)
		for d := len(shape) - 1; d >= 0; d-- {
			want += rest % shape[d] * stride[d]
			rest /= shape[d]
		}
		if int64(at) != want {
			t.Errorf("case %d: element %d is %d, torch has %d", id, i, at, want)
			return
		}
	}
}

// castFile is schema refit.golden.cast.v1.
type castFile struct {
	CanonicalNaN map[string]uint64 `json:"canonical_nan"`
	Sources      map[string]struct{ Patterns, Data string }
	Pairs        []struct{ Src, Dst, SHA256 string }
}

var torchNames = map[string]safetensors.DType{
	"float64": safetensors.F64, "float32": safetensors.F32, "float16": safetensors.F16, "bfloat16": safetensors.BF16,
	"float8_e4m3fn": safetensors.F8E4M3, "float8_e5m2": safetensors.F8E5M2, "float8_e4m3fnuz": safetensors.F8E4M3FNUZ, "float8_e5m2fnuz": safetensors.F8E5M2FNUZ,
}

// Each conversion that the proof knows gives torch's bytes, every NaN standing for any.
func TestGoldenCasts(t *testing.T) {
	t.Parallel()
	var file castFile
	golden(t, "cast_cases.json.gz", &file)
	compared := 0
	for _, pair := range file.Pairs {
		from, to := torchNames[pair.Src], torchNames[pair.Dst]
		if castable(from, to) != nil {
			continue
		}
		in := patterns(t, file.Sources[pair.Src], from)
		nelems := len(in) / int(from.Size())
		index := make([]uint32, nelems)
		for i := range index {
			index[i] = uint32(i)
		}
		out := tensor{to, nil, make([]byte, nelems*int(to.Size()))}
		if err := convert(out, tensor{from, nil, in}, index, index); err != nil {
			t.Fatal(err)
		}
		canonical := binary.LittleEndian.AppendUint64(nil, file.CanonicalNaN[pair.Dst])[:to.Size()]
		for at := 0; at < len(out.bytes); at += len(canonical) {
			if e := out.bytes[at : at+len(canonical)]; isNaN(to, e) {
				copy(e, canonical)
			}
		}
		if sum := sha256.Sum256(out.bytes); hex.EncodeToString(sum[:]) != pair.SHA256 {
			t.Errorf("%s to %s differs from torch", pair.Src, pair.Dst)
		}
		compared++
	}
	if compared < 20 {
		t.Errorf("only %d pairs compared", compared)
	}
}

func patterns(t *testing.T, s struct{ Patterns, Data string }, dtype safetensors.DType) []byte {
	t.Helper()
	if s.Patterns == "explicit" {
		b, err := base64.StdEncoding.DecodeString(s.Data)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	size := int(dtype.Size())
	var b []byte
	for i := range 1 << (8 * size) {
		b = append(b, binary.LittleEndian.AppendUint16(nil, uint16(i))[:size]...)
	}
	return b
}

// Without the goldens the rounding still has an anchor: every finite 16-bit number is its own nearest,
// and midpoints go to the even neighbour.
func TestRoundOwnNumbers(t *testing.T) {
	t.Parallel()
	for _, dtype := range []safetensors.DType{safetensors.F16, safetensors.BF16} {
		for i := range 1 << 16 {
			b := binary.LittleEndian.AppendUint16(nil, uint16(i))
			again := make([]byte, 2)
			if value := decoders[dtype](b); !math.IsNaN(value) {
				encoders[dtype](again, value)
				if !bytes.Equal(b, again) {
					t.Fatalf("%s: % x is %g, which became % x", dtype, b, value, again)
				}
			}
		}
	}
	for value, want := range map[float64]uint64{1 + 1.0/256: 0x3f80, 1 + 3.0/256: 0x3f82, 1 + 1.0/256 + 1e-9: 0x3f81, 3.4e38: 0x7f80, -1e-45: 0x8000} {
		if got := round(value, 8, 7); got != want {
			t.Errorf("%g became %x, want %x", value, got, want)
		}
	}
}
