// Package nixlsys is the fence around libnixl_capi: the only package that imports unsafe and purego. It turns C calls
// into Go calls with typed handles, copies everything that the library lends, and frees everything that it gives.
// It has no policy: no threads, no retries, no logging. Package nixl is the safe binding above it.
//
// Memory handed over by address (regions, descriptors) must not be Go heap. Buffers passed for the time of a call may be.
package nixlsys

import (
	"errors"
	"fmt"
)

// One type for each opaque handle, so that the compiler refuses to mix them. Zero is none.
type (
	// Agent is a NIXL agent.
	Agent uintptr
	// Backend is a plug-in instance of an agent.
	Backend uintptr
	// Params is a set of strings for a backend.
	Params uintptr
	// Options names backends for other calls.
	Options uintptr
	// RegList is a list of memory to register.
	RegList uintptr
	// XferList is a list of memory to move.
	XferList uintptr
	// Request is one transfer.
	Request uintptr
)

// MemType is the kind of memory that a descriptor names.
type MemType int32

// The kinds that this program moves.
const (
	DRAM MemType = 0
	VRAM MemType = 1
)

// Status is what the library answers. It is an error unless it is Success or InProgress.
type Status int32

// The statuses of the C interface.
const (
	InProgress   Status = 1
	Success      Status = 0
	InvalidParam Status = -1
	BackendError Status = -2
	InvalidState Status = -3
	Exception    Status = -4
	NoTelemetry  Status = -5
	NotFound     Status = -6
)

// String names a status as the C header does.
func (s Status) String() string {
	names := map[Status]string{
		InProgress: "IN_PROG", Success: "SUCCESS", InvalidParam: "INVALID_PARAM", BackendError: "BACKEND",
		InvalidState: "INVALID_STATE", Exception: "EXCEPTION", NoTelemetry: "NO_TELEMETRY", NotFound: "NOT_FOUND",
	}
	if n, ok := names[s]; ok {
		return n
	}
	return fmt.Sprintf("status %d", int32(s))
}

// Error makes a status an error.
func (s Status) Error() string { return "nixl: " + s.String() }

// err is nil for Success, and for InProgress too: the call was taken.
func (s Status) err() error {
	if s >= 0 {
		return nil
	}
	return s
}

// AgentConfig is how an agent works.
type AgentConfig struct {
	ProgressThread bool
	Sync           int32  // 0 none, 1 strict, 2 reader/writer
	ProgressDelay  uint64 // microseconds between two rounds of the progress thread
}

// Reasons for which the library can't be used.
var (
	// ErrUnsupported: this program wasn't built for a platform on which the library can be loaded.
	ErrUnsupported = errors.New("nixl can't be loaded on this platform")
	// ErrStub: the file is the placeholder that is installed without the real library.
	ErrStub = errors.New("the library is a stub")
	// ErrNUL: a name with a NUL byte, which C would cut short.
	ErrNUL = errors.New("name with a NUL byte")
)

// Desc is one run of memory.
type Desc struct {
	Addr   uint64
	Nbytes uint64
	Device uint64
}
