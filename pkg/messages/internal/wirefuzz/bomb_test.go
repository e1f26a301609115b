package wirefuzz

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// TestDensestLayoutStaysWithinTheLimits builds by hand what an attacker would: about a
// kilobyte that expands to as much as its length allows, of which every byte asks for as much
// memory as a row can.
func TestDensestLayoutStaysWithinTheLimits(t *testing.T) {
	rows := (messages.MinExpanded + messages.MaxRatio*1000) / 5
	zeros, pad := make([]byte, rows), make([]byte, 1000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(pad) // always whole
	tuples := func(values int) map[string][]byte {
		return map[string][]byte{"index": zeros, "lens": {byte(values)}, "values": bytes.Repeat([]byte{1}, values)}
	}
	sources, err := msgpack.Marshal(map[string]any{
		"nsources": 1, "prefix": []byte{0}, "suffix": []byte{1}, "text": []byte("x"), "dtype": []byte{byte(messages.U8)},
		"shape": map[string][]byte{"index": {0}, "lens": {8}, "values": bytes.Repeat([]byte{9}, 8)},
	})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := msgpack.Marshal(map[string]any{
		"schema": "drydock.layout.v1", "rank": 0, "regions": []byte{2}, "nregions": 1, "sources": sources, "nshards": rows,
		"a pad":  pad, // what the ratio asks for
		"source": zeros, "region": zeros, "offset": zeros, "box": tuples(16), "stride": tuples(8),
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		t.Fatal(err)
	}
	bomb := w.EncodeAll(plain, nil)
	before := allocated()
	_, err = messages.DecodeLayout(bomb)
	got, most := allocated()-before, mostAllocated("layout", len(bomb))
	if err != nil && !errors.Is(err, messages.ErrMalformed) {
		t.Errorf("it was refused before it asked for much: %v", err)
	}
	if got > most {
		t.Errorf("%d bytes made the decoder allocate %d, limit %d (%v)", len(bomb), got, most, err)
	}
	t.Logf("%d bytes, expanded %d, allocated %d, limit %d: %v", len(bomb), len(plain), got, most, err)
}
