// Package served lays a rank's shards out as readers like them, and makes the snapshot that is served.
//
// A trainer holds a matrix row-major. A tensor-parallel reader of a row-parallel weight takes a slice of its columns, and
// finds one short run in each row: 384 bytes each, 12.6 million of them, for the down projections of Qwen3-30B-A3B at
// size 4. Cut in blocks of a sixteenth of the columns, each block row-major and packed by itself, the same slice is
// four long runs. Nothing else knows of it: a block is a box of the layout like any other, so planner, transports and
// verification work as they do on plain shards.
//
// # Vocabulary
//
//   - Plain layout: shards as the trainer holds them, in one or several regions, packed or strided.
//   - Served layout: what is published. One region; every shard packed; chosen sources cut in column blocks.
//   - Snapshot: the way from one to the other. It belongs to one plain layout and is used for every version.
//   - Band: the tiles of a shard that lie beside each other, over all columns. It is copied, and then digested while its
//     bytes are still in the cache.
//
// # Laws
//
//  1. The boxes of the served layout have exactly the elements of the plain one, shard by shard, each once.
//  2. The digests that a copy returns are those that tiles.Table.DigestAll gives for the served layout and memory.
//  3. The layout follows from plain layout and options alone: all replicas of a rank serve equal blocks and tiles.
//
// It opens nothing, publishes nothing, and holds no memory but one scratch buffer a worker while it repacks in place.
package served
