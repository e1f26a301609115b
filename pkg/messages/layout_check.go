package messages

import "math/bits"

// cells is the tile grid of source i, in elements per dimension.
func (l *Layout) cells(i int) []int64 {
	lo := uint32(0)
	if i > 0 {
		lo = l.ShapeEnd[i-1]
	}
	return l.Grid[lo:l.ShapeEnd[i]]
}

// Nbytes is the number of bytes of all shards.
func (l *Layout) Nbytes() int64 {
	total, at := int64(0), 0
	for _, s := range l.Source {
		n := l.DTypes[s].Size()
		for range l.NDim(int(s)) {
			n *= l.Box[at+1] - l.Box[at]
			at += 2
		}
		total += n
	}
	return total
}

// eachShard walks over the boxes of all shards: lo0,hi0,lo1,hi1,… each.
func (l *Layout) eachShard(f func(shard int, box []int64)) {
	at := 0
	for i, s := range l.Source {
		n := 2 * l.NDim(int(s))
		f(i, l.Box[at:at+n])
		at += n
	}
}

// NTiles is the number of tiles of all shards: how many digests a version of the layout
// has. It is 0 without a grid, and beyond MaxTiles it is no exact count any more.
func (l *Layout) NTiles() int {
	total := 0
	if l.Grid == nil {
		return 0
	}
	l.eachShard(func(shard int, box []int64) {
		total = min(total+l.shardTiles(int(l.Source[shard]), box), MaxTiles+1)
	})
	return total
}

// shardTiles counts the cells of a source's grid that a box touches, up to one more
// than MaxTiles; cells begin at multiples of the grid's extents, in global coordinates.
func (l *Layout) shardTiles(source int, box []int64) int {
	n := int64(1)
	for d, grid := range l.cells(source) {
		lo, hi := box[2*d], box[2*d+1]
		if lo >= hi {
			return 0
		}
		// Both factors are at most 2^48, and the first is kept below 2^25: no overflow
		// that the bound does not catch, since it is applied after each dimension.
		n = min(n, MaxTiles+1)
		if cells := (hi-1)/grid - lo/grid + 1; cells > MaxTiles/n {
			n = MaxTiles + 1
		} else {
			n *= cells
		}
	}
	return int(n)
}

// validate checks a layout that a caller built.
func (l *Layout) validate() error {
	if err := l.validateSources(); err != nil {
		return err
	}
	return l.validateShards()
}

func (l *Layout) validateSources() error {
	n := len(l.Names)
	if err := limited(layoutSchema, "sources", int64(n), MaxSources); err != nil {
		return err
	}
	if len(l.DTypes) != n || len(l.ShapeEnd) != n {
		return malformed(layoutSchema, "names", "%d names, %d dtypes, %d shapes", n, len(l.DTypes), len(l.ShapeEnd))
	}
	if l.Grid != nil && len(l.Grid) != len(l.Shapes) {
		return malformed(layoutSchema, "grid", "%d extents for %d dimensions", len(l.Grid), len(l.Shapes))
	}
	end := uint32(0)
	for i, e := range l.ShapeEnd {
		if e < end || int(e) > len(l.Shapes) || e-end > MaxDims {
			return malformed(layoutSchema, "shape", "source %d %q: bad shape end", i, l.Names[i])
		}
		end = e
		if l.Names[i] == "" || len(l.Names[i]) > MaxName {
			return malformed(layoutSchema, "names", "source %d: name of %d bytes, want 1 to %d", i, len(l.Names[i]), MaxName)
		}
		if l.DTypes[i].Size() == 0 {
			return malformed(layoutSchema, "dtype", "source %q has type %v", l.Names[i], l.DTypes[i])
		}
	}
	for i, d := range l.Shapes {
		if d < 0 || d > MaxDim || l.Grid != nil && (l.Grid[i] <= 0 || l.Grid[i] > MaxDim) {
			return malformed(layoutSchema, "shape", "dimension %d is out of range", i)
		}
	}
	return checkUnique(l.Names)
}

// validateShards checks every shard against its source and its region, with no
// arithmetic that could overflow unseen.
func (l *Layout) validateShards() error {
	n := len(l.Source)
	if len(l.Region) != n || len(l.Offset) != n {
		return malformed(layoutSchema, "source", "%d sources, %d regions, %d offsets of shards", n, len(l.Region), len(l.Offset))
	}
	if err := limited(layoutSchema, "shards", int64(n), MaxShards); err != nil {
		return err
	}
	if err := l.validateHead(); err != nil {
		return err
	}
	at := 0 // of the shard's first dimension
	for i, s := range l.Source {
		if int(s) >= len(l.Names) || int(l.Region[i]) >= len(l.Regions) {
			return malformed(layoutSchema, "source", "shard %d: no source %d or no region %d", i, s, l.Region[i])
		}
		ndim := l.NDim(int(s))
		if len(l.Box) < 2*(at+ndim) || l.Stride != nil && len(l.Stride) < at+ndim {
			return malformed(layoutSchema, "box", "shard %d of %q: %d box values and %d strides are too few", i, l.Names[s], len(l.Box), len(l.Stride))
		}
		if err := l.checkShard(i, at, ndim); err != nil {
			return err
		}
		at += ndim
	}
	if len(l.Box) != 2*at || l.Stride != nil && len(l.Stride) != at {
		return malformed(layoutSchema, "box", "%d box values and %d strides for %d dimensions", len(l.Box), len(l.Stride), at)
	}
	return nil
}

func (l *Layout) validateHead() error {
	if l.Rank < 0 || l.Rank >= MaxWorld {
		return limited(layoutSchema, "rank", int64(uint(l.Rank)), MaxWorld-1)
	}
	if err := limited(layoutSchema, "regions", int64(len(l.Regions)), MaxRegions); err != nil {
		return err
	}
	for i, n := range l.Regions {
		if n < 0 {
			return malformed(layoutSchema, "regions", "region %d has %d bytes", i, n)
		}
	}
	if err := limited(layoutSchema, "box values", int64(len(l.Box)), MaxBoxValues); err != nil {
		return err
	}
	return checkGroups(l.Groups)
}

// checkShard proves that the box lies in the source's shape and its bytes in the region.
func (l *Layout) checkShard(i, at, ndim int) error {
	s := l.Source[i]
	shape := l.Shape(int(s))
	last, packed, empty, fits := uint64(0), uint64(1), false, true // elements
	for d := ndim - 1; d >= 0; d-- {
		lo, hi := l.Box[2*(at+d)], l.Box[2*(at+d)+1]
		if lo < 0 || hi < lo || hi > shape[d] {
			return malformed(layoutSchema, "box", "shard %d of %q: [%d, %d) is not in dimension %d of %d", i, l.Names[s], lo, hi, d, shape[d])
		}
		empty = empty || lo == hi
		stride := packed
		if l.Stride != nil {
			if l.Stride[at+d] < 0 {
				return malformed(layoutSchema, "stride", "shard %d of %q: negative", i, l.Names[s])
			}
			stride = uint64(l.Stride[at+d])
		}
		if hi > lo {
			fits = mulAdd(&last, uint64(hi-lo-1), stride) && fits
		}
		fits = mul(&packed, uint64(hi-lo)) && fits
	}
	if empty {
		last, fits = 0, true
	} else {
		last++
	}
	size := uint64(l.DTypes[s].Size())
	nbytes := l.Regions[l.Region[i]]
	if l.Offset[i] < 0 || !fits || last > uint64(nbytes)/size || uint64(l.Offset[i]) > uint64(nbytes)-last*size {
		return malformed(layoutSchema, "offset", "shard %d of %q: its bytes from %d do not lie in region %d of %d bytes", i, l.Names[s], l.Offset[i], l.Region[i], nbytes)
	}
	return nil
}

// mulAdd adds a*b to *sum; false when that overflows.
func mulAdd(sum *uint64, a, b uint64) bool {
	hi, lo := bits.Mul64(a, b)
	var carry uint64
	*sum, carry = bits.Add64(*sum, lo, 0)
	return hi == 0 && carry == 0
}

// mul multiplies *product by a; false when that overflows.
func mul(product *uint64, a uint64) bool {
	hi, lo := bits.Mul64(*product, a)
	*product = lo
	return hi == 0
}

func checkGroups(groups []Group) error {
	if err := limited(layoutSchema, "groups", int64(len(groups)), MaxGroups); err != nil {
		return err
	}
	for i, g := range groups {
		if g.Kind != GroupAlias && g.Kind != GroupAtomic {
			return malformed(layoutSchema, "groups", "group %d is of unknown kind %d", i, g.Kind)
		}
		if len(g.Members) < 2 {
			return malformed(layoutSchema, "groups", "group %d has %d members, want two or more", i, len(g.Members))
		}
		for _, m := range g.Members {
			if m == "" || len(m) > MaxName {
				return malformed(layoutSchema, "groups", "group %d: member of %d bytes", i, len(m))
			}
		}
	}
	return nil
}
