package tiles

import "golang.org/x/sys/cpu"

// rowsWork says whether this processor has what one of the two is written in, wideRows whether it has both.
var (
	rowsWork = cpu.X86.HasAVX2
	wideRows = rowsWork && cpu.X86.HasAVX512F
)

// accumulate picks one. Both do the same.
func accumulate(acc *[8]uint64, first *byte, halves, skip, stripes int64, wide bool) {
	if wide {
		accumulateRows512(acc, first, halves, skip, stripes, &xxhSecret)
	} else {
		accumulateRows(acc, first, halves, skip, stripes, &xxhSecret)
	}
}

// accumulateRows adds stripes of 64 bytes to the accumulators of an xxh3, with a scramble after each block of 16. The bytes
// are those of rows of halves × 32 bytes, the first at first, skip bytes between the end of one and the beginning of the
// next. It reads stripes × 64 bytes, at least one stripe, and checks nothing.
//
//go:noescape
func accumulateRows(acc *[8]uint64, first *byte, halves, skip, stripes int64, secret *[192]byte)

//go:noescape
func accumulateRows512(acc *[8]uint64, first *byte, halves, skip, stripes int64, secret *[192]byte)
