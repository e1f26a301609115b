// Package nixl is the transport over NVIDIA's NIXL, whose library is opened at run time: no cgo, no build-time link,
// and no library needed by programs that don't use it. It moves host memory, and device memory by address.
//
// # What it adds to the library
//
//   - A control channel: each serving endpoint also runs a small tcp transport (package tcp) whose regions are one byte
//     each, numbered as the real ones. A reader connects there first, with a deadline, so that a dead route never
//     reaches the library, which would block for minutes; and it reads one byte of each region it used after every
//     read. That finds sources that died, restarted or withdrew a region, which the library alone does not: over
//     shared memory a deregistered region is still readable.
//   - A checksum over the library's metadata: it doesn't survive all damaged bytes, so none are handed to it. And since a
//     forger makes the checksum too, a child process that tries out what is met for the first time (Config.Probe).
//   - Agents apart: one serves, a few read, so that a stalled call hurts the peers of one reading agent only.
//   - Quarantine: a transfer that never ends keeps its destination held, is counted and logged once.
//
// # Rules of the library that shape this package
//
// An agent needs a progress thread or its strict lock; without either, calls from several goroutines hang or crash it.
// The serving agent has the thread, reading agents the lock. A posted request is polled by one goroutine an agent. Over shared memory the copy happens inside the post call, so posts run on a
// goroutine of each peer. Requests are released only when they have ended. Children are closed before their parents.
//
// The library reads its configuration from the C environment while it is opened. Config.Env is set there where the
// operator hasn't set the variable; by default UCX is told to leave signals and memory functions alone, which belong
// to the Go runtime.
package nixl
