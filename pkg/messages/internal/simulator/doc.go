// Package simulator runs the machines of package protocol against a store that
// behaves as badly as JetStream may: answers are lost or late, writes arrive after
// their sender has given up, replicas lag, the leader is away, leases expire, clocks
// drift, and processes crash at any step. Invariants are checked after each step.
//
// A schedule is a list of choices. The same choices give the same run, the empty list
// is the run in which nothing goes wrong, and a failing schedule is shrunk by taking
// choices away, until its transcript is short enough to read.
//
// It performs no I/O, starts no goroutine and reads no clock.
//
// Law: what the simulator checks, it checks of the machines that package messages
// performs on real servers. A mutation of a machine, or of how its intents are
// performed, must be caught here; the tests hold a list of such mutations.
package simulator
