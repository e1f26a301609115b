package messages

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
)

// The memory that payloads are expanded into is used again: no decoded layout may still
// refer to it. Each is compared with its original after many others were decoded.
func TestLayoutsKeepNothingOfTheirPayload(t *testing.T) {
	t.Parallel()
	original := make([]*Layout, 12)
	for i := range original {
		var names []string
		var shapes [][]int64
		for j := range 400 {
			names, shapes = append(names, fmt.Sprintf("model-%c.größe.%d.weight", 'a'+i%3, j)), append(shapes, []int64{int64(12 * (i + 1)), 8})
		}
		original[i] = fsdpLayout(names, shapes, i, len(original), i%2 == 0)
		original[i].Groups = []Group{{GroupAtomic, []string{names[i], names[i+1]}}}
	}
	var wg sync.WaitGroup
	cache := &catalogueCache{}
	for range 4 {
		wg.Go(func() {
			decoded := make([]*Layout, len(original))
			for i, l := range original {
				b, err := EncodeLayout(l)
				if err != nil {
					t.Error(err)
					return
				}
				if decoded[i], err = decodeLayout(b, cache); err != nil {
					t.Error(err)
					return
				}
			}
			for i := range decoded {
				if !reflect.DeepEqual(decoded[i], original[i]) {
					t.Errorf("layout %d is another one after the others were decoded", i)
				}
			}
		})
	}
	wg.Wait()
}

// What carries no digests is a matter of version 2: a reader of version 1 never meets it, and one that meets version 1
// does not look for it.
func TestBareSourcesTravelByTheirOwnSchema(t *testing.T) {
	t.Parallel()
	all, err := EncodeTiles(&Tiles{Digests: []uint64{1, 2}})
	if err != nil || !bytes.Contains(all, []byte("drydock.tiles.v1")) || bytes.Contains(all, []byte("bare")) {
		t.Fatalf("all digests: %q, %v", all, err)
	}
	some, err := EncodeTiles(&Tiles{Digests: []uint64{1, 0}, Bare: []uint32{3, 70000}})
	if err != nil || !bytes.Contains(some, []byte("drydock.tiles.v2")) {
		t.Fatalf("some digests: %q, %v", some, err)
	}
	got, err := DecodeTiles(some)
	if err != nil || !slices.Equal(got.Bare, []uint32{3, 70000}) {
		t.Fatalf("%+v, %v", got, err)
	}
	for source, carries := range map[uint32]bool{0: true, 3: false, 4: true, 70000: false, 70001: true} {
		if got.Carries(source) != carries {
			t.Errorf("source %d carries digests: %v", source, !carries)
		}
	}
	old := bytes.Replace(some, []byte("tiles.v2"), []byte("tiles.v1"), 1)
	if got, err := DecodeTiles(old); err != nil || got.Bare != nil {
		t.Errorf("version 1 has no such key: %+v, %v", got, err)
	}
	next := bytes.Replace(some, []byte("tiles.v2"), []byte("tiles.v3"), 1)
	if _, err := DecodeTiles(next); !errors.Is(err, ErrSchema) {
		t.Errorf("version 3: %v", err)
	}
	for name, bare := range map[string][]uint32{"twice": {3, 3}, "backwards": {4, 3}} {
		if _, err := EncodeTiles(&Tiles{Bare: bare}); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBindRefusesOtherTypes(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string][]byte{
		"a number for bytes":    {0x82, 0xa6, 's', 'c', 'h', 'e', 'm', 'a', 0xa0, 0xa7, 'd', 'i', 'g', 'e', 's', 't', 's', 0x05},
		"an array for bytes":    {0x81, 0xa7, 'd', 'i', 'g', 'e', 's', 't', 's', 0x91, 0x05},
		"a text for a number":   {0x81, 0xa6, 'n', 't', 'i', 'l', 'e', 's', 0xa1, 'x'},
		"an array":              {0x91, 0x05},
		"nothing":               {},
		"nil for the whole map": {0xc0},
	} {
		if got, err := DecodeTiles(payload); err == nil {
			t.Errorf("%s was read as %+v", name, got)
		}
	}
	// Nil stands for a key that is not there: other languages write it for empty bytes.
	nothing := append([]byte{0x83, 0xa6}, "schema\xb0drydock.tiles.v1"...)
	nothing = append(append(nothing, 0xa6), "ntiles\x00"...)
	nothing = append(append(nothing, 0xa7), "digests\xc0"...)
	if got, err := DecodeTiles(nothing); err != nil || len(got.Digests) != 0 {
		t.Errorf("no digests: %+v, %v", got, err)
	}
}
