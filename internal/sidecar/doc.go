// Package sidecar lets trainers that are not written in Go publish: it owns the memory that versions lie in, serves it to
// receivers and speaks the control plane's protocol, and is asked over a Unix socket, in HTTP and JSON (docs/sidecar.md).
//
// It never trains, never touches a trainer's own tensors, and never writes into an arena: the trainer's process maps the
// slots and copies into them; the sidecar digests what it finds there, once it was told that the copy is done.
//
// Vocabulary: an arena is the memory of one trainer rank, two slot files of one size in shared memory (or, for memory that
// is read in place, only a description of regions that another process has registered). A generation numbers the files of
// an arena: whoever maps an older one must map again. A session is one life of a trainer's client; a newer one supersedes
// the older. An entry is one box of one tensor, a place where the sidecar wants its bytes.
//
// The main law: a version is published only after its trainer has said that its slot is complete, in the generation that
// is served; and a slot is handed out for writing only after the version in it was withdrawn and nobody reads it. So
// whichever process dies, at whatever point, nobody reads a slot that is being written.
//
// What survives what: a trainer's death leaves its versions readable for a grace time, and then ends them. A sidecar's
// death ends what it served, because readers were told to reach that process; its next life adopts the files, withdraws
// those versions by name, and waits for their leases before it hands out a slot.
package sidecar
