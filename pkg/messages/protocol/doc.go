// Package protocol holds the decisions of Drydock's control plane as state machines:
// who may write what, in which order, and what an answer, or the lack of one, means.
//
// A machine takes one Result at a time and returns the next Intent. It performs
// nothing, reads no clock and starts no goroutine: package messages performs the intents
// on NATS JetStream, and a simulator performs them on a store that loses, delays
// and reorders. Both run these very machines.
//
// Vocabulary: a place is where one message lies (a table, a commit, a lease, …); a
// put is write-once; a swap replaces what has a known sequence; a leader read sees
// every acknowledged write, any other read may be short for a while, but never wrong,
// since places are write-once.
//
// Laws:
//   - A version exists when its manifest does, and a manifest is put only after every
//     table that it names was read.
//   - A commit place holds one of: nothing, a manifest, an end. The end is put before
//     leases are counted, and the lease is put before the manifest is read again, so
//     that of a collector and a receiver at least one sees the other.
//   - Every machine may be run again from its beginning after a crash, with the same result.
package protocol
