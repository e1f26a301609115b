package wirefuzz

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// golden reads the bytes of an annotated example.
func golden(f *testing.F, name string) []byte {
	f.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "golden", name+".hex"))
	if err != nil {
		f.Fatal(err)
	}
	var out []byte
	for line := range strings.Lines(string(text)) {
		digits, _, _ := strings.Cut(line, "#")
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		if err != nil {
			f.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// allocated is how many bytes the process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// mostAllocated is what a decoder may allocate for a message of nbytes: it expands to so
// many bytes at most, and each of those to so many of decoded columns. A layout's worst
// row is four bytes for a box and a stride of eight dimensions, 16 and 8 values of eight
// bytes, and 16 bytes of other columns; everything else stays below twice its payload.
func mostAllocated(name string, nbytes int) uint64 {
	factor := uint64(4)
	if name == "layout" {
		factor = 64
	}
	return factor*(messages.MinExpanded+messages.MaxRatio*uint64(nbytes)) + 1<<20
}

// fuzz feeds a decoder: it must not panic, must not allocate more than the limits say, must
// refuse with a typed error, and what it accepts must survive another round.
func fuzz[T any](f *testing.F, name string, decode func([]byte) (*T, error), encode func(*T) ([]byte, error)) {
	f.Add(golden(f, name))
	if name == "table" || name == "manifest" {
		f.Add(golden(f, name+"-partial"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		v, err := decode(b)
		if got, most := allocated()-before, mostAllocated(name, len(b)); got > most {
			t.Fatalf("%d bytes made the decoder allocate %d, limit %d", len(b), got, most)
		}
		if err != nil {
			if !errors.Is(err, messages.ErrMalformed) && !errors.Is(err, messages.ErrLimit) && !errors.Is(err, messages.ErrSchema) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := encode(v)
		if err != nil {
			if name == "status" || errors.Is(err, messages.ErrLimit) {
				return // readers are laxer: a status with any name, a frame denser than ours
			}
			t.Fatalf("accepted, but can't be written: %v", err)
		}
		w, err := decode(again)
		if err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
		third, err := encode(w)
		if err != nil || !reflect.DeepEqual(third, again) {
			t.Fatalf("%+v became %+v (%v)", v, w, err)
		}
	})
}

func FuzzLayout(f *testing.F) { fuzz(f, "layout", messages.DecodeLayout, messages.EncodeLayout) }
func FuzzEndpoint(f *testing.F) {
	fuzz(f, "endpoint", messages.DecodeEndpoint, messages.EncodeEndpoint)
}
func FuzzTiles(f *testing.F) { fuzz(f, "tiles", messages.DecodeTiles, messages.EncodeTiles) }
func FuzzTable(f *testing.F) { fuzz(f, "table", messages.DecodeTable, messages.EncodeTable) }
func FuzzManifest(f *testing.F) {
	fuzz(f, "manifest", messages.DecodeManifest, messages.EncodeManifest)
}
func FuzzEnded(f *testing.F)  { fuzz(f, "ended", messages.DecodeEnded, messages.EncodeEnded) }
func FuzzRun(f *testing.F)    { fuzz(f, "run", messages.DecodeRun, messages.EncodeRun) }
func FuzzLease(f *testing.F)  { fuzz(f, "lease", messages.DecodeLease, messages.EncodeLease) }
func FuzzOrder(f *testing.F)  { fuzz(f, "order", messages.DecodeOrder, messages.EncodeOrder) }
func FuzzStatus(f *testing.F) { fuzz(f, "status", messages.DecodeStatus, messages.EncodeStatus) }
func FuzzEngine(f *testing.F) { fuzz(f, "engine", messages.DecodeEngine, messages.EncodeEngine) }
