// Package tiles cuts sources into tiles and digests them, so that a reader of any slice can verify what it read.
//
// A source has a grid: the extent of a cell in each dimension, in elements. Cells lie at multiples of the grid from the
// source's own zero, whatever rank holds which part; the tiles of a shard are the intersections of its box with the
// cells, in row-major order of the cells. So equal boxes on two ranks have the same tiles, and the digests of replicas
// can be compared one by one.
//
// A tile's digest is xxh3-64 with seed 0 over the tile's bytes in row-major order of its box, wherever they lie.
//
// The law between writer and reader: the index that Within gives for a tile of a shard is the place of its digest in what
// Table.DigestAll appends for that shard. The package knows nothing of who holds what, or of transports.
package tiles
