// Package served lays a rank's shards out as readers like them, in the memory that is served.
//
// A trainer holds a matrix row-major. A tensor-parallel reader of a row-parallel weight takes a slice of its columns, and
// finds one short run in each row: 384 bytes each, 12.6 million of them, for the down projections of Qwen3-30B-A3B at
// size 4. Cut in blocks of a sixteenth of the columns, each block row-major and packed by itself, the same slice is
// four long runs. Nothing else knows of it: a block is a box of the layout like any other, so planner, transports and
// verification work as they do on plain shards.
//
// # Vocabulary
//
//   - Plain layout: shards as the trainer holds them, packed, in one region.
//   - Served layout: what is published. The same region, with chosen shards cut in column blocks that lie where the shard did.
//   - Snapshot: the way from one to the other. It belongs to one plain layout and is used for every version.
//
// # Laws
//
//  1. The boxes of the served layout have exactly the elements of the plain one, shard by shard, each once.
//  2. The layout follows from plain layout and options alone: all replicas of a rank serve equal blocks and tiles.
//
// It opens nothing, publishes nothing, digests nothing, and holds no memory but one scratch buffer a worker while it repacks.
package served
