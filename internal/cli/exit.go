package cli

import (
	"context"
	"errors"
)

// Exit codes of the three programs. They are part of the interface: scripts and supervisors read them.
const (
	ExitOK          = 0 // done, or stopped cleanly by a signal
	ExitFailure     = 1 // the work failed
	ExitUsage       = 2 // flags, environment or configuration file are wrong; nothing was started
	ExitUnavailable = 3 // a server, peer or transport that is needed can't be reached or used
	ExitInput       = 4 // a file, folder or capture that was named is missing or wrong
	ExitMismatch    = 5 // bytes, digests or coverage are not what they must be
	ExitCapacity    = 6 // memory, disk, shared memory or a port that is needed is not to be had
)

// coded is an error that knows its exit code.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// WithCode marks err, which may be nil, with the exit code that a program failing by it ends with.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &coded{code: code, err: err}
}

// Code returns the exit code for err: that of the innermost WithCode, since the place that knew most is the deepest.
func Code(err error) int {
	if err == nil || errors.Is(err, context.Canceled) {
		return ExitOK
	}
	code := ExitFailure
	for c := (*coded)(nil); errors.As(err, &c); err = c.err {
		code = c.code
	}
	return code
}
