package messages

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/drydock-rl/drydock/pkg/messages/internal/columns"
)

// sourceColumns are the decoded per-source columns of a layout.
type sourceColumns struct {
	names        []string
	dtypes       []DType
	shapeEnd     []uint32
	shapes, grid []int64
}

// catalogueCache shares decoded source columns between layouts. In most trainers every
// rank lists the same sources: 256 ranks with 69,120 names each would hold 1.2 GB
// of equal strings. A nil cache decodes each time.
//
// Columns are found by a fast hash and then compared byte by byte: no publisher can
// give others its own names by a collision, and nothing as slow as SHA-256 is needed.
type catalogueCache struct {
	mu    sync.Mutex
	known map[xxh3.Uint128]catalogue
}

type catalogue struct {
	packed []byte
	*sourceColumns
}

// maxCatalogues bounds the cache; beyond it everything is forgotten at once, which
// costs one decode for each catalogue still in use.
const maxCatalogues = 64

func (c *catalogueCache) sources(packed []byte) (*sourceColumns, error) {
	if c == nil {
		return decodeSources(packed)
	}
	id := xxh3.Hash128(packed)
	c.mu.Lock()
	known := c.known[id]
	c.mu.Unlock()
	if known.sourceColumns != nil && bytes.Equal(known.packed, packed) {
		return known.sourceColumns, nil
	}
	src, err := decodeSources(packed)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCatalogues {
		c.known = make(map[xxh3.Uint128]catalogue)
	}
	c.known[id] = catalogue{bytes.Clone(packed), src}
	return src, nil
}

func decodeSources(packed []byte) (*sourceColumns, error) {
	var w wireSources
	if err := unpackPlain(layoutSchema, packed, &w); err != nil {
		return nil, err
	}
	if err := limited(layoutSchema, "sources", int64(min(w.NSources, 1<<62)), MaxSources); err != nil {
		return nil, err
	}
	n := int(w.NSources)
	var src sourceColumns
	var err error
	src.names, err = columns.DecodeNames(
		columns.Names{Prefix: w.Prefix, Suffix: w.Suffix, Text: w.Text}, n,
		columns.NameLimits{Each: MaxName, Total: min(MaxNames, MinExpanded+maxNameRatio*len(packed))})
	if err != nil {
		return nil, malformed(layoutSchema, "names", "%v", err)
	}
	if err := checkUnique(src.names); err != nil {
		return nil, err
	}
	if src.dtypes, err = decodeDTypes(w.DType, n); err != nil {
		return nil, err
	}
	return &src, src.decodeShapes(&w, n)
}

func decodeDTypes(b []byte, n int) ([]DType, error) {
	if len(b) != n {
		return nil, malformed(layoutSchema, "dtype", "%d bytes for %d sources", len(b), n)
	}
	dtypes := make([]DType, n)
	for i, c := range b {
		dtypes[i] = DType(c)
		if dtypes[i].Size() == 0 {
			return nil, malformed(layoutSchema, "dtype", "source %d has type %v", i, dtypes[i])
		}
	}
	return dtypes, nil
}

// decodeShapes expands the dictionary of shapes, and the tile grids that lie beside it.
func (src *sourceColumns) decodeShapes(w *wireSources, n int) error {
	t, err := readTuples(w.Shape, n, MaxDim)
	if err != nil {
		return malformed(layoutSchema, "shape", "%v", err)
	}
	var grid []int64
	if len(w.Grid) > 0 {
		if grid, err = columns.Plain[int64](w.Grid, len(t.values), MaxDim); err != nil {
			return malformed(layoutSchema, "grid", "%v", err)
		}
		src.grid = make([]int64, 0, t.total)
	}
	src.shapeEnd = make([]uint32, n)
	src.shapes = make([]int64, 0, t.total)
	for i, x := range t.index {
		lo, hi := t.start[x], t.start[x+1]
		if hi-lo > MaxDims {
			return limited(layoutSchema, "dimensions", int64(hi-lo), MaxDims)
		}
		src.shapes = append(src.shapes, t.values[lo:hi]...)
		if grid != nil {
			src.grid = append(src.grid, grid[lo:hi]...)
		}
		src.shapeEnd[i] = uint32(len(src.shapes))
	}
	for i, g := range src.grid {
		if g == 0 {
			return malformed(layoutSchema, "grid", "extent %d is zero", i)
		}
	}
	return nil
}

// tuples is a decoded wireTuples before expansion.
type tuples struct {
	index  []uint32
	start  []uint32 // values[start[i]:start[i+1]] is tuple i
	values []int64
	total  int // values after expansion
}

func readTuples(w wireTuples, rows int, limit int64) (*tuples, error) {
	t := &tuples{start: make([]uint32, len(w.Lens)+1)}
	for i, n := range w.Lens {
		t.start[i+1] = t.start[i] + uint32(n)
	}
	var err error
	if t.values, err = columns.Plain[int64](w.Values, int(t.start[len(w.Lens)]), limit); err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	if t.index, err = columns.Deltas[uint32](w.Index, rows, int64(len(w.Lens))-1); err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	for _, x := range t.index {
		t.total += int(w.Lens[x])
		if t.total > MaxBoxValues {
			return nil, fmt.Errorf("%w: expands to more than %d values", columns.ErrMalformed, MaxBoxValues)
		}
	}
	return t, nil
}

// toBounds makes of tuples of (low, extent) pairs such of (low, high). There are far fewer
// tuples than rows. Both values are bounded, so that their sum does not overflow.
func (t *tuples) toBounds() error {
	for i, lo := range t.start[:len(t.start)-1] {
		tuple := t.values[lo:t.start[i+1]]
		if len(tuple)%2 != 0 {
			return fmt.Errorf("%w: tuple %d has %d values, which are no pairs", columns.ErrMalformed, i, len(tuple))
		}
		for d := 1; d < len(tuple); d += 2 {
			tuple[d] += tuple[d-1]
		}
	}
	return nil
}

// expand lists the values of all rows, one after the other.
func (t *tuples) expand() []int64 {
	out := make([]int64, t.total)
	at := 0
	for _, x := range t.index {
		// A loop, not copy: tuples have two to eight values.
		for _, v := range t.values[t.start[x]:t.start[x+1]] {
			out[at] = v
			at++
		}
	}
	return out
}

// checkUnique refuses a name that stands twice, by open addressing: a map of 70,000
// strings would cost more than the rest of the decoder.
func checkUnique(names []string) error {
	size := uint64(16)
	for size < 2*uint64(len(names)) {
		size *= 2
	}
	slots := make([]uint32, size) // index + 1; 0: free
	for i, name := range names {
		at := xxh3.HashString(name) & (size - 1)
		for slots[at] != 0 {
			if names[slots[at]-1] == name {
				return malformed(layoutSchema, "names", "source %.80q stands twice", name)
			}
			at = (at + 1) & (size - 1)
		}
		slots[at] = uint32(i) + 1
	}
	return nil
}
