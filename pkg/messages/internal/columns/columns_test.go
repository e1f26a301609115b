package columns

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestDeltasRoundTrip(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		vals := make([]int64, rng.IntN(50))
		for i := range vals {
			vals[i] = rng.Int64() >> rng.IntN(63)
		}
		got, err := Deltas[int64](AppendDeltas(nil, vals), len(vals), math.MaxInt64)
		if err != nil || !slices.Equal(got, vals) {
			t.Fatalf("%v became %v (%v)", vals, got, err)
		}
		got, err = Plain[int64](AppendPlain(nil, vals), len(vals), math.MaxInt64)
		if err != nil || !slices.Equal(got, vals) {
			t.Fatalf("plain: %v became %v (%v)", vals, got, err)
		}
	}
}

func TestKnownBytes(t *testing.T) {
	t.Parallel()
	if got := AppendDeltas(nil, []int64{4096, 4095, 4096}); !slices.Equal(got, []byte{0x80, 0x40, 0x01, 0x02}) {
		t.Errorf("deltas: % x", got)
	}
	if got := AppendPlain(nil, []int64{0, 127, 128}); !slices.Equal(got, []byte{0, 0x7f, 0x80, 0x01}) {
		t.Errorf("plain: % x", got)
	}
}

func TestDeltasRefuse(t *testing.T) {
	t.Parallel()
	huge := AppendDeltas(AppendDeltas(nil, []int64{math.MaxInt64}), []int64{math.MaxInt64})
	for name, c := range map[string]struct {
		b     []byte
		n     int
		limit int64
	}{
		"cut":           {[]byte{0x80}, 1, 100},
		"too short":     {[]byte{0x02}, 2, 100},
		"left over":     {[]byte{0x02, 0x02}, 1, 100},
		"negative":      {[]byte{0x01}, 1, 100},
		"above limit":   {AppendDeltas(nil, []int64{101}), 1, 100},
		"overflow":      {huge, 2, math.MaxInt64},
		"eleven bytes":  {[]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, 1, 100},
		"negative n":    {nil, -1, 100},
		"much for free": {nil, 1 << 40, 100},
	} {
		if got, err := Deltas[int64](c.b, c.n, c.limit); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	limits := NameLimits{Each: 100, Total: 1000}
	for _, names := range [][]string{
		nil, {"a"}, {"a.b", "a.c", "a", "b"}, {"größe", "grün", "g"}, {"same", "same"},
	} {
		got, err := DecodeNames(EncodeNames(names), len(names), limits)
		if err != nil || !slices.Equal(got, names) {
			t.Errorf("%q became %q (%v)", names, got, err)
		}
	}
	for name, n := range map[string]Names{
		"prefix beyond":     {Prefix: []byte{0, 2}, Suffix: []byte{1, 1}, Text: []byte("ab")},
		"prefix of nothing": {Prefix: []byte{1, 0}, Suffix: []byte{1, 1}, Text: []byte("ab")},
		"empty name":        {Prefix: []byte{0, 0}, Suffix: []byte{1, 0}, Text: []byte("a")},
		"text too short":    {Prefix: []byte{0, 0}, Suffix: []byte{1, 2}, Text: []byte("ab")},
		"text too long":     {Prefix: []byte{0, 0}, Suffix: []byte{1, 1}, Text: []byte("abc")},
		"half a rune":       {Prefix: []byte{0, 0}, Suffix: []byte{1, 1}, Text: []byte("\xc3\xb6")},
		"too long":          {Prefix: []byte{0, 0}, Suffix: []byte{100, 1}, Text: make([]byte, 101)},
	} {
		if got, err := DecodeNames(n, 2, limits); !errors.Is(err, ErrMalformed) && name != "too long" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := DecodeNames(EncodeNames([]string{"abcdef", "abcdeg"}), 2, NameLimits{Each: 10, Total: 11}); !errors.Is(err, ErrMalformed) {
		t.Errorf("more than Total: %v", err)
	}
}
