//go:build !amd64

package tiles

// rowsWork: rows are gathered and hashed at once where nobody wrote anything better.
const rowsWork, wideRows = false, false

func accumulate(*[8]uint64, *byte, int64, int64, int64, bool) {
	panic("never called: rowsWork is false")
}
