// Package demo runs the main job on one machine, from real programs: trainer ranks publish the shards of a checkpoint,
// receivers assemble, stage and apply each version, and the result is proven without the code under test.
//
// The demo starts publisher and receiver as child processes, on an embedded NATS server or a given one, collects their
// traces and their refit records, and takes part itself as one more receiver, which serves a version once it has proven
// the arenas of all others. Publishers wait for it like for any receiver, so no version passes unproven.
//
// Nothing of it is left behind, whatever happens, unless it is asked to keep everything.
package demo
