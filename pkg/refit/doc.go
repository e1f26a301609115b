// Package refit is the engine that ties the parts together: it publishes versions out of a trainer rank's memory, and
// stages and applies them on a receiver.
//
// On the trainer's side a Publisher owns the slots of memory that a rank serves, digests them, publishes and commits a
// version, and says when its bytes are free again. On the rollout side a Receiver stages exactly the version that it is
// asked for, into memory that nothing serves from, and installs it when told to:
//
//	staged, err := receiver.Stage(ctx, key)   // reads, verifies, transforms; touches nothing that serves
//	…                                         // the caller's own work, at a safe point of its choosing
//	err = receiver.Apply(ctx, staged)         // all ranks, or none
//
// or receiver.Release(staged) instead of Apply. Follow does this for each newest committed version in turn.
//
// The laws that this package holds (docs/failures.md has them by failure class, and Policies in code):
//
//   - Whatever fails before Apply leaves the old version serving. Apply is all or nothing.
//   - A byte is applied only if the lease on its version was alive when it was read, the plan proved that every
//     destination byte is written exactly once, and each tile that it brought whole has the digest of its publisher.
//   - Memory beyond the arenas is the configured staging budget.
//   - Every wait has a deadline, which follows progress: it bounds the time without a finished batch, not the whole.
//   - A buffer that a transfer may still write to is never used again: it is quarantined, counted and logged.
//
// Only this package knows messages, plan, rdma and tracing together. It reads no flags and no environment.
package refit
