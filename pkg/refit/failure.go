package refit

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
)

// Class is what kind of failure ended a stage or an apply. It is stable: status, metrics and alerts carry it.
type Class string

// The classes. Policies says what is done about each.
const (
	SourceLost        Class = "source-lost"
	CorruptTile       Class = "corrupt-tile"
	ReplicaConflict   Class = "replica-conflict"
	Unverified        Class = "unverified"
	PlanRefused       Class = "plan-refused"
	LeaseLost         Class = "lease-lost"
	Gone              Class = "version-gone"
	Torn              Class = "torn"
	Superseded        Class = "superseded"
	Deadline          Class = "deadline"
	NoRoom            Class = "no-room"
	ControlPlane      Class = "control-plane"
	InstallRefused    Class = "install-refused"
	EngineUnreachable Class = "engine-unreachable"
	Backwards         Class = "backwards"
	Cancelled         Class = "cancelled"
	Internal          Class = "internal"
)

// Policy is the answer to one class of failure.
type Policy struct {
	Class   Class
	Means   string // what happened
	Retried string // what is retried within the stage, on what, how often
	Again   bool   // whether Follow stages the same version again while it is the newest
}

// Policies is the failure policy, one row for each class. In every row the old version goes on serving.
var Policies = []Policy{
	{SourceLost, "a trainer rank can't be reached, stopped answering or restarted", "the batch: once on a new connection, then on each replica", true},
	{CorruptTile, "bytes differ from their publisher's digest", "the batch: once from the same rank, then on each replica", true},
	{ReplicaConflict, "ranks that hold the same box published different digests", "nothing", false},
	{Unverified, "fewer bytes could be verified than the configured floor", "nothing", false},
	{PlanRefused, "the capture and the published layouts do not fit each other", "nothing", false},
	{LeaseLost, "the claim on the version expired or was taken away", "nothing: bytes read since can't be trusted", true},
	{Gone, "the version was withdrawn before it was staged", "nothing", false},
	{Torn, "what a rank published contradicts the manifest, or can't be read", "nothing", false},
	{Superseded, "a newer version was applied or is wanted instead", "nothing", false},
	{Deadline, "no batch ended within the progress deadline", "as a lost source", true},
	{NoRoom, "memory, shared memory or disk is short", "nothing", true},
	{ControlPlane, "the message server can't be reached or refused", "reads and writes, until their own deadline", true},
	{InstallRefused, "the engine said no", "nothing: the engine is back on the old version", false},
	{EngineUnreachable, "the engine can't be asked", "nothing", true},
	{Backwards, "the version is not newer than the one that serves", "nothing", false},
	{Cancelled, "the caller gave up", "nothing", false},
	{Internal, "a defect of Drydock's", "nothing", false},
}

// PolicyFor is the row of a class; an unknown one is treated as Internal.
func PolicyFor(c Class) Policy {
	for _, p := range Policies {
		if p.Class == c {
			return p
		}
	}
	return PolicyFor(Internal)
}

// Failure is the error of Stage and Apply.
type Failure struct {
	Class Class
	Op    string // "stage", "apply"
	Model string
	Key   messages.Key
	Err   error
}

// Error tells what was being done, to what, what was found, and what serves now.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s %s run %d version %d: %s: %v (the old version serves)", f.Op, f.Model, f.Key.Run, f.Key.Version, f.Class, f.Err)
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// ErrorClass names the class for spans and metrics.
func (f *Failure) ErrorClass() string { return string(f.Class) }

// classed marks an error with its class where it is known best: at its origin.
type classed struct {
	class Class
	err   error
}

func (c *classed) Error() string { return c.err.Error() }
func (c *classed) Unwrap() error { return c.err }

// as marks err, which may be nil, with a class.
func as(c Class, err error) error {
	if err == nil {
		return nil
	}
	return &classed{c, err}
}

// classOf finds the class of err: the one it was marked with, else what its kind says.
func classOf(err error) Class {
	var c *classed
	switch {
	case errors.As(err, &c):
		return c.class
	case errors.Is(err, rdma.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return Deadline
	case rdma.KindOf(err) != 0:
		return SourceLost
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.ENOMEM):
		return NoRoom
	case errors.Is(err, context.Canceled):
		return Cancelled
	}
	return Internal
}

// ClassOf is the class of an error that Stage, Apply or Follow returned.
func ClassOf(err error) Class {
	var f *Failure
	if errors.As(err, &f) {
		return f.Class
	}
	return classOf(err)
}
