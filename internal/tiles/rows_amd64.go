package tiles

import "golang.org/x/sys/cpu"

// rowsWork says whether this processor has what accumulateRows is written in.
var rowsWork = cpu.X86.HasAVX2

// accumulateRows adds stripes of 64 bytes to the accumulators of an xxh3, with a scramble after each block of 16. The bytes
// are those of rows of halves × 32 bytes, the first at first, skip bytes between the end of one and the beginning of the
// next. It reads stripes × 64 bytes, at least one stripe, and checks nothing.
//
//go:noescape
func accumulateRows(acc *[8]uint64, first *byte, halves, skip, stripes int64, secret *[192]byte)
