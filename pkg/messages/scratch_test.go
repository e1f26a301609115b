package messages

import (
	"fmt"
	"reflect"
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
