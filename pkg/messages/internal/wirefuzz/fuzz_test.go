package wirefuzz

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
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

// fuzz feeds a decoder: it must not panic, must refuse with a typed error, and what it
// accepts must survive another round.
func fuzz[T any](f *testing.F, name string, decode func([]byte) (*T, error), encode func(*T) ([]byte, error)) {
	f.Add(golden(f, name))
	if name == "table" || name == "manifest" {
		f.Add(golden(f, name+"-partial"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decode(b)
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
