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
	EngineUnknown     Class = "engine-unknown"
	GroupRefused      Class = "group-refused"
	GroupLate         Class = "group-late"
	CorruptArena      Class = "corrupt-arena"
	Busy              Class = "busy"
	Backwards         Class = "backwards"
	Cancelled         Class = "cancelled"
	Internal          Class = "internal"
)

// Policy is the answer to one class of failure. Its texts are the table of docs/failures.md, word for word.
type Policy struct {
	Class   Class
	Means   string // what happened
	Retried string // what is retried within the stage or apply, on what
	Times   string // how often, until when
	Again   bool   // whether Follow stages the same version again while it is the newest
	Seen    string // what the operator sees beside class and text, and what to look at
	Serves  string // what the engine serves meanwhile
}

// What serves after a failure, as the table says it.
const (
	servesOld   = "the old version"
	servesDoubt = "the old version where the engine takes it back; until it says so, not known"
)

// Policies is the failure policy, one row for each class.
var Policies = []Policy{
	{
		SourceLost, "a trainer rank can't be reached, stopped answering or restarted",
		"the batch, on a new connection, then on each replica", "once, then once for each replica", true,
		"rank and batch in the text; `drydock.refit.retries`; that trainer rank's log", servesOld,
	},
	{
		CorruptTile, "bytes differ from their publisher's digest",
		"the batch, from the same rank, then on each replica", "once, then once for each replica", true,
		"rank, source, box and both digests in the text; memory or link of that rank", servesOld,
	},
	{
		ReplicaConflict, "ranks that hold the same box published different digests",
		"nothing", "", false, "both ranks and the source in the text; the trainer's replicas have diverged", servesOld,
	},
	{
		Unverified, "fewer bytes could be verified than the configured floor",
		"nothing", "", false, "verified and read bytes in the text; `--verify-floor`, tiles of the publisher", servesOld,
	},
	{
		PlanRefused, "the capture and the published layouts do not fit each other",
		"nothing", "", false, "parameter, source and box in the text; `refitctl plan` with the same capture", servesOld,
	},
	{
		LeaseLost, "the claim on the version expired or was taken away",
		"nothing: bytes read since can't be trusted", "", true, "`refitctl why`; the link to the message server", servesOld,
	},
	{
		Gone, "the version was withdrawn before it was staged",
		"nothing", "", false, "the newest version is staged instead; the trainer retires faster than this host stages", servesOld,
	},
	{
		Torn, "what a rank published contradicts the manifest, or can't be read",
		"nothing", "", false, "rank and message in the text; `refitctl why`", servesOld,
	},
	{
		Superseded, "a newer version was applied or is wanted instead",
		"nothing", "", false, "the versions skipped, in the status", servesOld,
	},
	{
		Deadline, "no batch ended within the progress deadline",
		"the batch, as of a lost source", "once, then once for each replica", true,
		"who was waited for in the text; `--stall`", servesOld,
	},
	{
		NoRoom, "memory, shared memory or disk is short",
		"nothing", "", true, "bytes needed, free and missing in the text; `refitctl arenas --remove-orphans`", servesOld,
	},
	{
		ControlPlane, "the message server can't be reached or refused",
		"reads and writes", "until their own deadline, 30 s", true, "`refitctl health`", servesOld,
	},
	{
		InstallRefused, "the engine said no",
		"nothing: the engine is back on the old version", "", false, "the engine's own words in the text; its log", servesOld,
	},
	{
		EngineUnreachable, "the engine can't be asked, and was not touched",
		"calls that may be repeated", "as the installer is configured", true, "address in the text; whether the engine runs", servesOld,
	},
	{
		EngineUnknown, "the engine was asked and did not answer: it may hold either version",
		"the installation of the old version", "once", true,
		"the call that was not answered, and whether the old version was taken back, in the text", servesDoubt,
	},
	{
		GroupRefused, "another receiver of the same engine refused or failed, or goes by the same name",
		"nothing: this rank is back on the old version", "", false, "receiver and its reason in the text; that receiver's status", servesOld,
	},
	{
		GroupLate, "another receiver of the same engine did not stage or install in time",
		"nothing: this rank is back on the old version", "", true, "who was waited for in the text; that receiver's status", servesOld,
	},
	{
		CorruptArena, "bytes of an arena differ from what was verified there before",
		"the blocks that differ are read again, into an arena that nothing serves from", "once", true,
		"file and block in the log; memory of this host, or who else writes to the arena folder", "what the engine loaded; the arena that it maps may be damaged",
	},
	{
		Backwards, "the version is not newer than the one that serves",
		"nothing", "", false, "both versions in the text; to go back is `refitctl rollback`", servesOld,
	},
	{
		Busy, "another version is being staged",
		"nothing", "", true, "the status says which one", servesOld,
	},
	{
		Cancelled, "the caller gave up",
		"nothing", "", false, "the receiver was stopped", servesOld,
	},
	{
		Internal, "a defect of Drydock's",
		"nothing", "", false, "please report text and log", servesOld,
	},
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
	serves := servesOld + " serves"
	if s := PolicyFor(f.Class).Serves; s != servesOld {
		serves = "serves: " + s
	}
	return fmt.Sprintf("%s %s run %d version %d: %s: %v (%s)", f.Op, f.Model, f.Key.Run, f.Key.Version, f.Class, f.Err, serves)
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
	case errors.Is(err, ErrBusy):
		return Busy
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
