// Package integration tests the programs together: a real message server, real publisher and receiver processes,
// real shared memory, and a small checkpoint. It has no code but tests, and no program imports it.
//
// Vocabulary: a world is one server, one model on it and the processes of that model; the gate is the test's own
// receiver, which publishers wait for like for any other, so that the test says when the next version is made; an eye is
// the test's connection to the control plane; a bystander is whoever reads a receiver's arenas as an engine would.
//
// Law: a test asserts bytes. An exit code, a status or a log line is never the only evidence: arenas are recomputed from
// the checkpoint by package proof, or compared with what they held before. Nothing is waited for without a deadline, and
// nothing outlives its test: not a process, not a file, not a goroutine.
package integration
