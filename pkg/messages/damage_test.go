package messages

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// decoders are all decoders of the wire format, by the name of their golden. Each
// returns what it read as `any`, and how to write it again.
var decoders = map[string]func([]byte) (any, func() ([]byte, error), error){
	"layout":           codec(DecodeLayout, EncodeLayout),
	"endpoint":         codec(DecodeEndpoint, EncodeEndpoint),
	"tiles":            codec(DecodeTiles, EncodeTiles),
	"tiles-bare":       codec(DecodeTiles, EncodeTiles),
	"table":            codec(DecodeTable, EncodeTable),
	"table-partial":    codec(DecodeTable, EncodeTable),
	"manifest-partial": codec(DecodeManifest, EncodeManifest),
	"manifest":         codec(DecodeManifest, EncodeManifest),
	"ended":            codec(DecodeEnded, EncodeEnded),
	"run":              codec(DecodeRun, EncodeRun),
	"lease":            codec(DecodeLease, EncodeLease),
	"order":            codec(DecodeOrder, EncodeOrder),
	"status":           codec(DecodeStatus, EncodeStatus),
	"engine":           codec(DecodeEngine, EncodeEngine),
}

func codec[T any](decode func([]byte) (*T, error), encode func(*T) ([]byte, error)) func([]byte) (any, func() ([]byte, error), error) {
	return func(b []byte) (any, func() ([]byte, error), error) {
		v, err := decode(b)
		return v, func() ([]byte, error) { return encode(v) }, err
	}
}

// checkDecoder feeds b to one decoder: it must not panic, refuse with a typed error, and
// what it accepts must survive another round.
func checkDecoder(t *testing.T, name string, b []byte) {
	t.Helper()
	v, encode, err := decoders[name](b)
	if err != nil {
		if !isBadPayload(err) {
			t.Fatalf("%s: untyped error %v", name, err)
		}
		return
	}
	again, err := encode()
	if err != nil {
		if name == "status" || errors.Is(err, ErrLimit) {
			return // a reader is laxer: a status with a bad name, a frame denser than ours
		}
		t.Fatalf("%s: accepted, but can't be written: %v", name, err)
	}
	w, _, err := decoders[name](again)
	if err != nil {
		t.Fatalf("%s: what was written can't be read: %v", name, err)
	}
	if name != "layout" && name != "status" && !reflect.DeepEqual(v, w) {
		t.Fatalf("%s: %+v became %+v", name, v, w)
	}
}

// TestDamagedPayloads damages every example in many ways, also where there is no fuzzer.
func TestDamagedPayloads(t *testing.T) {
	t.Parallel()
	for name, payload := range examples(t) {
		plain, err := expand(name, payload, fresh)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range len(plain) {
			checkDecoder(t, name, plain[:i])
			if _, _, err := decoders[name](plain[:i]); err == nil {
				t.Errorf("%s: accepted when cut at %d", name, i)
			}
			for range 8 {
				b := append([]byte{}, plain...)
				b[i] = byte(rng.Uint32())
				checkDecoder(t, name, b)
			}
		}
		if _, _, err := decoders[name](append(append([]byte{}, plain...), 0xc0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: something follows, and it is accepted: %v", name, err)
		}
	}
}

// TestUnknownKeysAreIgnored: the version rule's first half.
func TestUnknownKeysAreIgnored(t *testing.T) {
	t.Parallel()
	for name, payload := range examples(t) {
		plain, err := expand(name, payload, fresh)
		if err != nil {
			t.Fatal(err)
		}
		if plain[0]&0xf0 != 0x80 || plain[0] == 0x8f {
			continue // not a short map: the same code reads it
		}
		b := append([]byte{plain[0] + 1}, plain[1:]...)
		b = append(b, "\xa6future\x93\x01\xc0\xa3abc"...)
		if _, _, err := decoders[name](b); err != nil {
			t.Errorf("%s with an unknown key: %v", name, err)
		}
	}
}

// TestUnknownSchema: the version rule's second half.
func TestUnknownSchema(t *testing.T) {
	t.Parallel()
	for name := range decoders {
		b := append([]byte{0x81}, "\xa6schema\xb1drydock.layout.v9"...)
		if _, _, err := decoders[name](b); !errors.Is(err, ErrSchema) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBombs: small messages that claim much. Nothing may allocate beyond what the
// limits say for a message of this size.
func TestBombs(t *testing.T) {
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	zeros := zw.EncodeAll(make([]byte, 64<<20), nil)
	deep := make([]byte, 100_000)
	for i := range deep {
		deep[i] = 0x91
	}
	for what, b := range map[string][]byte{
		"zeros":             zeros,
		"zeros, cut":        zeros[:min(len(zeros), 1000)],
		"nested arrays":     deep,
		"nested, squeezed":  zw.EncodeAll(deep, nil),
		"long array":        {0xdd, 0xff, 0xff, 0xff, 0xff, 0x01},
		"long map":          {0xdf, 0xff, 0xff, 0xff, 0xff, 0xa1, 'a', 0x01},
		"long bin":          {0x81, 0xa5, 't', 'a', 'b', 'l', 'e', 0xc6, 0xff, 0xff, 0xff, 0xff},
		"frame without end": {0x28, 0xb5, 0x2f, 0xfd, 0x00},
		"nothing":           {},
		"same key twice":    append([]byte{0x82}, "\xa1a\x01\xa1a\x01"...),
		"integer key":       {0x81, 0x01, 0x01},
		"ext type":          {0xd4, 0x01, 0x01},
	} {
		for name, decode := range decoders {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := decode(b)
			runtime.ReadMemStats(&after)
			if !isBadPayload(err) {
				t.Errorf("%s as %s: %v", what, name, err)
			}
			bound := 2*(MinExpanded+MaxRatio*uint64(len(b))) + 1<<20
			if got := after.TotalAlloc - before.TotalAlloc; got > bound {
				t.Errorf("%s (%d bytes) as %s: allocated %d bytes, bound %d", what, len(b), name, got, bound)
			}
		}
	}
}

// TestAddressesAreChecked: what an endpoint may not claim.
func TestAddressesAreChecked(t *testing.T) {
	t.Parallel()
	e := exampleEndpoint()
	e.Regions[0].Base = ^uint64(0) - 100
	if _, err := EncodeEndpoint(e); !errors.Is(err, ErrMalformed) {
		t.Errorf("a region beyond the address space: %v", err)
	}
	l := exampleLayout()
	for what, regions := range map[string][]EndpointRegion{
		"too small": {{Base: 1, Nbytes: 4095}}, "none": {},
	} {
		if err := matchRegions(l, &Endpoint{Regions: regions}, nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := matchRegions(l, &Endpoint{Regions: []EndpointRegion{{}, {Nbytes: 4096}}}, []uint32{1}); err != nil {
		t.Errorf("second buffer: %v", err)
	}
	if err := matchRegions(l, exampleEndpoint(), []uint32{7}); !errors.Is(err, ErrMalformed) {
		t.Errorf("no such region: %v", err)
	}
}
