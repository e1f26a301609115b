package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// fileOf is a file with this JSON and nbytes of tensor bytes.
func fileOf(text string, nbytes int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	b = append(b, text...)
	for i := range nbytes {
		b = append(b, byte(i))
	}
	return b
}

func parse(b []byte) (*Header, error) {
	return Parse("f.safetensors", bytes.NewReader(b), int64(len(b)))
}

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	text := `{"__metadata__":{"format":"pt"},
		"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},
		"scalar":{"shape":[],"data_offsets":[0,8],"dtype":"I64"},
		"none":{"dtype":"F32","shape":[0,7],"data_offsets":[8,8]},
		"packed":{"dtype":"F4","shape":[3,2],"data_offsets":[20,23]}}  `
	h, err := parse(fileOf(text, 23))
	if err != nil {
		t.Fatal(err)
	}
	start := int64(8 + len(text))
	if h.Start != start || h.Metadata["format"] != "pt" {
		t.Errorf("start %d, metadata %v", h.Start, h.Metadata)
	}
	want := []Tensor{
		{"none", F32, []int64{0, 7}, start + 8, 0},
		{"packed", F4, []int64{3, 2}, start + 20, 3},
		{"scalar", I64, []int64{}, start, 8},
		{"w", BF16, []int64{2, 3}, start + 8, 12},
	}
	if fmt.Sprint(h.Tensors) != fmt.Sprint(want) {
		t.Errorf("tensors %v, want %v", h.Tensors, want)
	}
}

func TestParseEmpty(t *testing.T) {
	t.Parallel()
	h, err := parse(fileOf("{}", 0))
	if err != nil || len(h.Tensors) != 0 || h.Metadata != nil {
		t.Fatalf("%v %v", h, err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	one := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"w":{"dtype":%q,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
	}
	two := func(a, b string) string {
		return fmt.Sprintf(`{"a":{"dtype":"U8","shape":[4],"data_offsets":%s},"b":{"dtype":"U8","shape":[4],"data_offsets":%s}}`, a, b)
	}
	tests := []struct {
		name, text string
		nbytes     int
		kind       error
		says       string // a part of the message
	}{
		{"not an object", `[1]`, 0, ErrJSON, "f.safetensors"},
		{"leading blank", ` {}`, 0, ErrJSON, ""},
		{"empty header", ``, 0, ErrJSON, ""},
		{"cut JSON", `{"w":{"dtype":"U8"`, 0, ErrJSON, "tensor w"},
		{"text after", `{} {}`, 0, ErrJSON, "after"},
		{"not UTF-8", "{\"\xff\":{}}", 0, ErrJSON, ""},
		{"entry is a number", `{"w":3}`, 0, ErrJSON, "tensor w"},
		{"missing key", `{"w":{"dtype":"U8","shape":[1]}}`, 1, ErrJSON, "data_offsets"},
		{"one offset", one("U8", "[1]", "[0]"), 1, ErrJSON, "tensor w"},
		{"three offsets", one("U8", "[1]", "[0,1,2]"), 1, ErrLimit, "at most 2"},
		{"unknown key", `{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, 1, ErrJSON, `"x"`},
		{"key twice", `{"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, 1, ErrDuplicate, "dtype"},
		{"name twice", `{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2, ErrDuplicate, "tensor w"},
		{"metadata twice", `{"__metadata__":{"a":"1","a":"2"}}`, 0, ErrDuplicate, `"a"`},
		{"metadata no string", `{"__metadata__":{"a":1}}`, 0, ErrJSON, "__metadata__"},
		{"dtype no string", `{"w":{"dtype":7,"shape":[1],"data_offsets":[0,1]}}`, 1, ErrJSON, "7 in place of a string"},
		{"unknown dtype", one("Q4", "[2]", "[0,1]"), 1, ErrDType, `"Q4"`},
		{"negative dimension", one("U8", "[-1]", "[0,1]"), 1, ErrJSON, "-1"},
		{"fraction", one("U8", "[1.5]", "[0,1]"), 1, ErrJSON, "1.5"},
		{"exponent", one("U8", "[1e1]", "[0,10]"), 10, ErrJSON, "1e1"},
		{"huge number", one("U8", "[99999999999999999999]", "[0,1]"), 1, ErrJSON, ""},
		{"too many elements", one("U8", "[4294967296,4294967296]", "[0,1]"), 1, ErrShape, "2^63"},
		{"too many bits", one("F64", "[1152921504606846976]", "[0,1]"), 1, ErrShape, "2^63"},
		{"half a byte", one("F4", "[3]", "[0,2]"), 2, ErrShape, "12 bits"},
		{"beyond the file", one("U8", "[9]", "[0,9]"), 8, ErrRange, "8 tensor bytes"},
		{"backwards", one("U8", "[1]", "[3,2]"), 4, ErrRange, "[3, 2]"},
		{"bytes for the shape", one("F32", "[3]", "[0,6]"), 6, ErrLength, "12 bytes for F32 [3]"},
		{"overlap", two("[0,4]", "[2,6]"), 6, ErrOverlap, "tensor b"},
		{"same range", two("[0,4]", "[0,4]"), 4, ErrOverlap, "where tensor a ends"},
		{"hole between", two("[0,4]", "[6,10]"), 10, ErrHole, "a start at 4"},
		{"hole first", one("U8", "[4]", "[1,5]"), 5, ErrHole, "where the header ends"},
		{"bytes at the end", one("U8", "[4]", "[0,4]"), 7, ErrHole, "3 bytes after tensor w"},
		{"long name", `{"` + strings.Repeat("n", MaxName+1) + `":{}}`, 0, ErrLimit, "1025 bytes"},
		{"many dimensions", one("U8", "["+strings.Repeat("1,", MaxDims)+"1]", "[0,1]"), 1, ErrLimit, "at most 16"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, err := parse(fileOf(test.text, test.nbytes))
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("%s\ngot %v, %v\nwant %v with %q", test.text, h, err, test.kind, test.says)
			}
			if !strings.Contains(err.Error(), "f.safetensors") {
				t.Errorf("%v doesn't name the file", err)
			}
		})
	}
}

func TestParseTruncated(t *testing.T) {
	t.Parallel()
	whole := fileOf(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)
	for n := range len(whole) {
		if _, err := parse(whole[:n]); !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrRange) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	long := slices.Clone(whole)
	binary.LittleEndian.PutUint64(long, 1<<63)
	if _, err := parse(long); !errors.Is(err, ErrLimit) {
		t.Errorf("header of 2^63 bytes: %v", err)
	}
}

func TestParseBrokenReader(t *testing.T) {
	t.Parallel()
	whole := fileOf(`{}`, 0)
	for _, n := range []int{4, 9} { // the file claims more than can be read
		if _, err := Parse("f", bytes.NewReader(whole[:n]), int64(len(whole))); err == nil {
			t.Errorf("%d readable bytes: no error", n)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(fileOf(`{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"__metadata__":{"a":"b"}}`, 12))
	f.Add(fileOf(`{"a":{"dtype":"F4","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"C64","shape":[],"data_offsets":[0,8]}}   `, 8))
	f.Add(fileOf(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{}}`, 4))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parse(b)
		if err != nil {
			var typed *Error
			if !errors.As(err, &typed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		// What was accepted tiles the file, and can be laid out again.
		total, specs := h.Start, []Spec{}
		for _, tensor := range h.Tensors {
			total += tensor.Nbytes
			specs = append(specs, Spec{tensor.Name, tensor.DType, tensor.Shape})
		}
		if total != int64(len(b)) {
			t.Fatalf("tensors cover %d of %d bytes", total, len(b))
		}
		if l, err := NewLayout(specs, h.Metadata, 8); err != nil || l.Nbytes-int64(len(l.Header)) != total-h.Start {
			t.Fatalf("layout %+v: %v", l, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	var specs []Spec
	for i := range 18_867 {
		specs = append(specs, Spec{fmt.Sprintf("model.layers.7.mlp.experts.%d.gate_proj.weight", i), BF16, []int64{4, 8}})
	}
	l, err := NewLayout(specs, nil, PageAlign)
	if err != nil {
		b.Fatal(err)
	}
	file := append(l.Header, make([]byte, l.Nbytes-int64(len(l.Header)))...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parse(file); err != nil {
			b.Fatal(err)
		}
	}
}
