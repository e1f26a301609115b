package plan

import "fmt"

// Layout is the geometry of one rank's shards, in columns. A Table keeps the Names, Offset and Region
// columns by reference: they must not change after Merge.
type Layout struct {
	Rank    int
	Regions []int64 // bytes of each registered region

	// per source
	Names    []string
	DTypes   []DType
	ShapeEnd []uint32 // Shapes[ShapeEnd[i-1]:ShapeEnd[i]] is the global shape of source i
	Shapes   []int64  // elements

	// per shard
	Source []uint32 // index into the per-source columns
	Region []uint32
	Offset []int64 // bytes from the region's base to the box's first element
	Box    []int64 // lo0,hi0,lo1,hi1,… in elements: 2*ndim(source) values per shard, concatenated
	Stride []int64 // nil: every shard lies row-major packed; else ndim(source) values per shard, in elements
}

// maxSourceDims is the largest number of dimensions of a source.
const maxSourceDims = 8

// shape returns the global shape of local source i.
func (l *Layout) shape(i int) []int64 {
	from := uint32(0)
	if i > 0 {
		from = l.ShapeEnd[i-1]
	}
	return l.Shapes[from:l.ShapeEnd[i]]
}

// validate checks that the columns fit each other; what depends on their values is checked row by row.
func (l *Layout) validate() error {
	ns, nsh := len(l.Names), len(l.Source)
	switch {
	case len(l.DTypes) != ns || len(l.ShapeEnd) != ns:
		return fmt.Errorf("%w: %d names, %d dtypes, %d shapes", ErrLayout, ns, len(l.DTypes), len(l.ShapeEnd))
	case len(l.Region) != nsh || len(l.Offset) != nsh:
		return fmt.Errorf("%w: %d shards, %d regions, %d offsets", ErrLayout, nsh, len(l.Region), len(l.Offset))
	}
	from := uint32(0)
	for i, end := range l.ShapeEnd {
		if end < from || int(end) > len(l.Shapes) {
			return fmt.Errorf("%w: the shape of source %q ends at %d of %d", ErrLayout, l.Names[i], end, len(l.Shapes))
		}
		if end-from > maxSourceDims {
			return fmt.Errorf("%w: source %q has %d dimensions, at most %d", ErrLimit, l.Names[i], end-from, maxSourceDims)
		}
		from = end
	}
	return l.validateShards(nsh, ns)
}

// validateShards checks the lengths of the per-shard columns; boxes and places are checked while merging.
func (l *Layout) validateShards(nshards, nsources int) error {
	dims := 0
	for k, s := range l.Source {
		if int(s) >= nsources {
			return fmt.Errorf("%w: shard %d is of source %d of %d", ErrLayout, k, s, nsources)
		}
		dims += len(l.shape(int(s)))
	}
	if len(l.Box) != 2*dims {
		return fmt.Errorf("%w: %d shards need %d box values, found %d", ErrLayout, nshards, 2*dims, len(l.Box))
	}
	if l.Stride != nil && len(l.Stride) != dims {
		return fmt.Errorf("%w: %d shards need %d strides, found %d", ErrLayout, nshards, dims, len(l.Stride))
	}
	return nil
}
