// Package tracing says where each millisecond of a refit went.
//
// It keeps the record of one refit cycle on one destination rank, prints it as
// one MX_REFIT_TIMING line, and shows the same cycle as OpenTelemetry spans in
// the trace of its version, and as metrics. It never moves a byte of weights,
// never fails a refit, and never reads the environment except through an
// injected getenv (default [os.Getenv]).
//
// # Vocabulary
//
//   - A cycle is one refit of one destination: from the moment that a receiver
//     begins to stage a version until it is applied, released or has failed. A
//     host whose ranks refit together may keep one cycle for all of them.
//   - A stage is one of the ten kinds of work in [Stages]. A stage may have many
//     spans, also concurrent ones; its duration is the wall time during which at
//     least one of them was open, and count is how many there were.
//   - A phase is one of the calls that a cycle consists of: stage, then apply.
//     Between two phases the caller does its own work; that pause lies in e2e_ms
//     and shows in the trace as a gap.
//   - A detail is a span below a stage, for one source read for instance. Details
//     are bounded for each cycle, and folded into one aggregate beyond that.
//
// # Law
//
// A cycle reports exactly once, whatever happened: [Cycle.Finish] is idempotent
// and the first call wins, so that a deferred Finish covers every early return
// and panic. With no cycle in the context nothing is recorded and nothing is
// allocated: every method of a nil [*Cycle] and a nil [*Span] does nothing.
//
// For every emitted record
//
//	0 <= duration_ms(stage) <= e2e_ms       (measured stages)
//	unattributed_ms = e2e_ms - (time during which any stage was open)
package tracing
