package safetensors

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestLayoutRoundTrip(t *testing.T) {
	t.Parallel()
	specs := []Spec{
		{"bias", BF16, []int64{3}},
		{"mask", Bool, []int64{5}},
		{"step", I64, nil},
		{"none", F32, []int64{0, 4}},
		{`quoted "näme"`, F32, []int64{2, 2}},
		{"fp4", F4, []int64{2, 2}},
		{"a", BF16, []int64{1, 2}},
	}
	for _, align := range []int64{8, 64, PageAlign} {
		l, err := NewLayout(specs, map[string]string{"drydock.rank": "3"}, align)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(l.Header))%align != 0 {
			t.Errorf("header of %d bytes isn't a multiple of %d", len(l.Header), align)
		}
		file := append(bytes.Clone(l.Header), make([]byte, l.Nbytes-int64(len(l.Header)))...)
		h, err := parse(file)
		if err != nil {
			t.Fatalf("%s: %v", l.Header, err)
		}
		if h.Metadata["drydock.rank"] != "3" {
			t.Errorf("metadata %v", h.Metadata)
		}
		found := map[string]string{}
		for _, tensor := range h.Tensors {
			found[tensor.Name] = fmt.Sprint(tensor.DType, tensor.Shape, tensor.Offset, tensor.Nbytes)
		}
		for i, placed := range l.Tensors {
			if placed.Name != specs[i].Name {
				t.Errorf("tensor %d is %s", i, placed.Name)
			}
			if want := fmt.Sprint(placed.DType, placed.Shape, placed.Offset, placed.Nbytes); found[placed.Name] != want {
				t.Errorf("%s: header says %s, layout %s", placed.Name, found[placed.Name], want)
			}
			if size := placed.DType.Size(); size > 0 && placed.Offset%size != 0 {
				t.Errorf("%s at %d isn't aligned to %d", placed.Name, placed.Offset, size)
			}
		}
	}
}

func TestLayoutDeterministic(t *testing.T) {
	t.Parallel()
	specs := []Spec{{"b", U8, []int64{2}}, {"a", U8, []int64{2}}}
	metadata := map[string]string{"x": "1", "y": "2", "z": "3"}
	first, err := NewLayout(specs, metadata, 8)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"__metadata__":{"x":"1","y":"2","z":"3"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`
	if got := strings.TrimRight(string(first.Header[8:]), " "); got != want {
		t.Errorf("header %s\nwant   %s", got, want)
	}
	for range 8 {
		if again, _ := NewLayout(specs, metadata, 8); !bytes.Equal(again.Header, first.Header) {
			t.Errorf("another header: %s", again.Header)
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		specs []Spec
		align int64
		says  string
	}{
		{"alignment", nil, 48, "48"},
		{"small alignment", nil, 4, "at least 8"},
		{"unknown dtype", []Spec{{"w", "X", nil}}, 8, `tensor w: unknown dtype "X"`},
		{"negative", []Spec{{"w", U8, []int64{-1}}}, 8, "negative"},
		{"half byte", []Spec{{"w", F6E2M3, []int64{3}}}, 8, "18 bits"},
		{"twice", []Spec{{"w", U8, nil}, {"w", U8, nil}}, 8, `"w"`},
		{"reserved", []Spec{{"__metadata__", U8, nil}}, 8, "reserved"},
		{"dimensions", []Spec{{"w", U8, make([]int64, MaxDims+1)}}, 8, "dimensions"},
		{"overflow", []Spec{
			{"v", U8, []int64{math.MaxInt64 / 8}},
			{"w", F64, []int64{1 << 57}},
			{"x", F64, []int64{1 << 57}},
			{"y", F64, []int64{1 << 57}},
			{"z", F64, []int64{1 << 57}},
			{"a", F64, []int64{1 << 57}},
			{"b", F64, []int64{1 << 57}},
			{"c", F64, []int64{1 << 57}},
			{"d", F64, []int64{1 << 57}},
		}, 8, "2^63"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewLayout(test.specs, nil, test.align); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want a message with %q", err, test.says)
			}
		})
	}
}

func TestDTypes(t *testing.T) {
	t.Parallel()
	widths := map[DType]int64{
		Bool: 8, U8: 8, I8: 8, I16: 16, U16: 16, I32: 32, U32: 32, I64: 64, U64: 64, F16: 16, BF16: 16,
		F32: 32, F64: 64, F8E4M3: 8, F8E5M2: 8, F8E4M3FNUZ: 8, F8E5M2FNUZ: 8, F8E8M0: 8, F4: 4, F6E2M3: 6, F6E3M2: 6, C64: 64,
	}
	if len(widths) != 22 || len(bits) != len(widths) {
		t.Errorf("%d dtypes tested, %d known, 22 in the format", len(widths), len(bits))
	}
	for d, width := range widths {
		if d.Bits() != width || d.Size() != map[bool]int64{true: width / 8}[width%8 == 0] {
			t.Errorf("%s: %d bits, %d bytes", d, d.Bits(), d.Size())
		}
	}
}
