package proof

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/safetensors"
)

// formula is source number t of a recorded capture: a mixed counter with one bit
// cleared, so that every float is finite (captures/README.md).
func formula(t int, s capturegen.Source) tensor {
	size := s.DType.Size()
	nelems, _ := safetensors.Count(s.Shape)
	b := make([]byte, 0, nelems*size+8)
	for i := range uint64(nelems) {
		z := (uint64(t)<<40 | i) + 0x9E3779B97F4A7C15
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
		z &^= 1 << (8*size - 2)
		b = binary.LittleEndian.AppendUint64(b, z)[:len(b)+int(size)]
	}
	return tensor{s.DType, s.Shape, b}
}

// Every parameter of every recorded case comes out as vLLM's own loader made it.
func TestRecordedCaptures(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("../capturegen/testdata/captures/*.json.gz")
	if shared, _ := filepath.Glob("../../../shared/captures/*.json.gz"); len(shared) > 0 {
		files = shared
	} else {
		t.Log("the shared captures are absent: only those in testdata are replayed")
	}
	if len(files) < 9 {
		t.Fatalf("%d captures", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json.gz"), func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := capturegen.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			replayCapture(t, c)
		})
	}
}

func replayCapture(t *testing.T, c *capturegen.Capture) {
	t.Helper()
	sources := map[int]tensor{}
	source := func(i int) (tensor, error) {
		if _, ok := sources[i]; !ok {
			sources[i] = formula(i, c.Sources[i])
		}
		return sources[i], nil
	}
	for i := range c.Cases {
		x := &c.Cases[i]
		copies, fills := byParam(x)
		for k := range x.Params {
			p := &x.Params[k]
			if p.Excluded != "" {
				continue
			}
			got, err := rebuild(p, copies[k], fills[k], source)
			if err != nil {
				t.Fatalf("tp %d rank %d: %s: %v", x.TP, x.Rank, p.Name, err)
			}
			if sum := sha256.Sum256(got.bytes); hex.EncodeToString(sum[:]) != p.SHA256 {
				t.Errorf("tp %d rank %d ep %t: %s differs", x.TP, x.Rank, x.EP, p.Name)
			}
		}
	}
}
