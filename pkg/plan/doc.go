// Package plan turns what a destination needs and what the trainer ranks hold into reads, staging,
// conversions and scatters.
//
// It is pure arithmetic: no I/O, no clock, no goroutine, no logging. Equal inputs give equal plans.
//
// # Vocabulary
//
//   - A source is one full logical tensor. A shard is an axis-aligned box of a source at a place in a
//     rank's registered memory. A Layout holds the shards of one rank, a Table the merged shards of all.
//   - A Copy says that a view of a source (an op-chain, replayed as torch does) fills a strided region of
//     a parameter. A Fill sets a region to a constant. A Dest holds both for one destination rank.
//   - A Segment is a strided read: a run of bytes repeated over up to three outer dimensions.
//   - A Batch is what is read from one rank in one go, within the staging bound. A Scatter moves bytes
//     from a batch's staging to an arena, and casts on the way.
//   - A Piece names the box of a shard that a batch brings, so that the caller can verify it.
//
// Offsets and strides of segments, scatters and pieces are in bytes; those of layouts, views and copies
// are in elements. Ranges are half-open.
//
// # Law
//
// Every destination byte that a plan answers for is written exactly once. The planner does not merely
// intend it: before New returns, the finished segments, scatters and fills are checked against the copies as
// given, by code that shares nothing with the planner (certificate.go, package cover), and holes and overlaps
// are refused by name. Of a version of which a part changed, what the base holds counts as written.
package plan
