// Package rdma moves bytes from the registered memory of one process into the memory of another, by one-sided reads.
//
// It knows nothing of tensors, versions or plans. It never decides what to read, never retries on its own, and never
// touches a byte that no segment names. Digests are the caller's: a transport may deliver wrong bytes and not know it.
//
// # Vocabulary
//
//   - Memory: one mapping (memfd, named file, anonymous, or device memory that somebody else owns). Never Go heap.
//   - Region: memory that a transport serves. Regions are numbered from 0 in the order of registration.
//   - Access: how to reach one endpoint by one transport; opaque bytes that travel in the endpoint's description.
//   - Remote: one endpoint as a reader sees it: rank, host, incarnation, regions, and the access to use.
//   - Segment: run bytes, repeated over up to three outer dimensions with strides on both sides.
//   - Peer: a live connection to one Remote. Transfer: one posted batch of segments.
//
// # Laws
//
//  1. Read posts and returns; all peers' reads are posted before any is awaited.
//  2. A transfer ends in exactly one terminal state. Until then its destination is held: Memory.Close answers ErrBusy.
//     Ending a Wait by its context ends the wait and nothing else.
//  3. After a terminal error the bytes named by the transfer's segments are undefined, and no others were written.
//  4. After a terminal state the transport writes no more into the destination. Where that can't be proved, the
//     transfer ends with ErrQuarantined and the destination stays held.
//  5. Every error is an *Error, whose Kind says what is left behind and so what a caller may do next; but what a caller said
//     itself of a part that had landed (PartReader) comes back to it as it was.
//
// Transports are the folders below: tcp (always there), local (one host), nixl (libnixl at run time) and inproc (the
// reference, for tests). Package landing looks at bytes of a batch while they are in the cache. Package rdmatest holds the
// conformance suite that all transports pass.
package rdma
