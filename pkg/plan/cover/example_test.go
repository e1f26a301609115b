package cover_test

import (
	"fmt"

	"github.com/drydock-rl/drydock/pkg/plan/cover"
)

// Two columns of a 3 by 4 parameter, the second one a byte too far to the right.
func ExampleEqual() {
	spaces := []cover.Space{{Lo: 0, Hi: 12}}
	writes := func(yield func(int, *cover.Region) bool) {
		for i, off := range []int64{0, 3} {
			r := cover.Region{Off: off, Run: 2 - int64(i), NDim: 1}
			r.N[0], r.Stride[0] = 3, 4
			if !yield(i, &r) {
				return
			}
		}
	}
	v := cover.Equal(spaces, cover.Whole(spaces), writes, 2)
	faults, _ := cover.Faults(spaces, v.Wrong, writes, true, 10)
	for _, f := range faults {
		fmt.Printf("bytes [%d, %d) are written %d times\n", f.Lo, f.Hi, f.Times)
	}
	// Output:
	// bytes [2, 3) are written 0 times
	// bytes [6, 7) are written 0 times
	// bytes [10, 11) are written 0 times
}
