// Package messages carries Drydock's shard tables over NATS JetStream and turns them
// into committed, ordered, fenced versions that any number of receivers assemble.
//
// It never moves a byte of a weight, never decides what a receiver reads from whom, and
// never acts on a message that it could not read whole.
//
// # Vocabulary
//
// A run is one life of a training job; taking the next run number fences all older
// runs. A version is a key (run, version), ordered by run first. A rank publishes a
// table: digests of its layout (geometry), its endpoint (how to reach its memory) and
// its tile digests (what its bytes are). A manifest names the table of every rank: it
// is the commit. An end stands in a manifest's place once the version is abandoned
// or retired. A lease is a receiver's claim that it is reading a version. An order is
// an operator's rollback. A base is the exact version, by key and manifest digest, that
// a partial version's differences are to be put upon, and on no other.
//
// # Main law
//
// A version exists when its manifest does. Everything is written once, so that a
// read from a lagging replica may be short but never wrong; what must not be short
// (the commit after a lease was written, the leases after a commit was withdrawn) is
// read through the stream's leader.
//
// # Partial versions
//
// A Publication with a Base says that only some sources changed since: those that
// Changed names, or those whose digests differ from BaseTiles. Commit checks that all
// ranks mean the same base. A receiver asks Version.StagesOn whether what it serves is
// that base, reads what Version.Changed lists, and else stages the whole from the same
// layouts; Version.Ref is what it notes as served.
//
// # Wire format, version 1
//
// Each payload is one msgpack map, optionally in one zstd frame that states its content
// size. A map begins with its schema:
//
//	drydock.layout.v1     geometry of one rank, in columns   refit.<m>.b.<run>.<sha256>.<chunk>
//	drydock.endpoint.v1   how to reach a rank                inline in the table, else as a layout
//	drydock.tiles.v1      xxh3-64 of each tile               inline, else refit.<m>.v.<run>.<version>.d.<rank>.<chunk>
//	drydock.tiles.v2      the same, not of all sources       as v1
//	drydock.table.v1      what a rank publishes              refit.<m>.v.<run>.<version>.t.<rank>
//	drydock.manifest.v1   the commit                         refit.<m>.c.<run>.<version>
//	drydock.ended.v1      abandoned or retired               in the manifest's place
//	drydock.run.v1        a run is taken                     refit.<m>.r.<run>
//	drydock.order.v1      a rollback                         refit.<m>.o.<n>
//	drydock.lease.v1      a receiver reads                   $KV.refit_lease_<m>.<run>.<version>.<receiver>
//	drydock.status.v1     what a process says of itself      $KV.refit_status_<m>.<name>
//	drydock.engine.v1     where an engine's receivers stand  $KV.refit_status_<m>.engine.<engine>
//
// Integers in columns are zigzag varints of differences, or plain varints; names are
// front-coded; shapes and boxes are dictionaries. Blobs are cut in chunks of 512 KiB.
//
// Version rule: within v1 only optional keys are added; readers ignore keys that they do
// not know. A change that a v1 reader would misread gets a new schema name, and a reader
// that meets one returns ErrSchema and leaves the message alone.
//
// A run record as an example, byte for byte (run 1 of job "train-42", world 1):
//
//	86                          map of 6
//	a6 "schema" ae "drydock.run.v1"
//	a3 "run"    01
//	a3 "job"    a8 "train-42"
//	a5 "nonce"  c4 10 01 02 03 00 …   16 bytes
//	a5 "world"  01
//	a8 "taken_ms" cf 00 00 01 8b cf e5 68 7b
//
// docs/wire.md in the repository holds every field, type, unit and limit, and the
// protocol's steps; a publisher in another language can be written from it alone.
package messages
