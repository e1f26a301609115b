// Package trainer stands in for a training process: it holds one rank's shards of a checkpoint, changes their values with
// each version as an optimizer would, and publishes them. cmd/publisher is this package with flags.
//
// A real trainer replaces this package and keeps the rest: it owns the memory, and calls refit.Publisher.
package trainer
