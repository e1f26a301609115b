package messages

import (
	"fmt"
	"testing"
)

// A model so regular that zstd makes 2.7 MB of it into one kilobyte: readers would take
// that for a bomb, so it must travel as it is.
func TestVeryRegularLayoutTravels(t *testing.T) {
	t.Parallel()
	const n = 100_000
	l := &Layout{Regions: []int64{n * 128}}
	for i := range n {
		l.Names = append(l.Names, fmt.Sprintf("layers.%d.experts.%d.weight", i/128, i%128))
		l.DTypes = append(l.DTypes, BF16)
		l.Shapes = append(l.Shapes, 8, 8)
		l.ShapeEnd = append(l.ShapeEnd, uint32(2*i+2))
		l.Source = append(l.Source, uint32(i))
		l.Region = append(l.Region, 0)
		l.Offset = append(l.Offset, int64(i)*128)
		l.Box = append(l.Box, 0, 8, 0, 8)
	}
	b, err := EncodeLayout(l)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeLayout(b)
	if err != nil || len(got.Names) != n || got.Names[n-1] != l.Names[n-1] {
		t.Errorf("%d bytes were read back as %d sources: %v", len(b), len(got.Names), err)
	}
}
