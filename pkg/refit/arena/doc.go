// Package arena keeps the destination memory of one receiver: for each of its ranks a valid safetensors file that an
// engine can map, twice or more, so that one version is staged while another serves.
//
// A receiver's folder looks like this:
//
//	<root>/lock                     held by the receiver that owns the folder
//	<root>/current -> slot-1        what serves; replaced atomically
//	<root>/slot-1/rank-0.safetensors
//	<root>/slot-1/rank-1.safetensors
//	<root>/slot-2/…                 staged into, or the version that served before
//
// A Slot is one such set of files: one version of all ranks. Readers open <root>/current/rank-<r>.safetensors. Whoever opens
// more than one file resolves `current` once, and opens them in the folder that it led to: it may lead elsewhere in between.
//
// The laws of this package:
//
//   - A file that `current` leads to is never written.
//   - A file that any process still maps or has open is never written: it is found by asking the kernel for a write
//     lease, which is refused then. Such a slot is unlinked, so that its readers keep their bytes, and a new one is made.
//   - A file has a valid header only when all its bytes are staged and verified: the header is written last, and wiped
//     before the first byte of the next version arrives.
//   - All room is reserved when a slot is made. A full file system is an error then, never a signal later.
//
// The package knows nothing of plans, transports or engines; it never decides when to flip.
package arena
