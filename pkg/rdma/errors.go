package rdma

import (
	"errors"
	"fmt"
	"strings"
)

// Kind classifies what went wrong. It is itself an error, so that errors.Is(err, rdma.ErrStale) asks for the kind.
type Kind uint8

// The kinds. Each says what is left behind.
const (
	// ErrUnreachable: nobody answered. Nothing was read; the endpoint may come back.
	ErrUnreachable Kind = iota + 1
	// ErrTimeout: no progress within the deadline. Bytes of this read are undefined.
	ErrTimeout
	// ErrReset: the connection or its process ended in the middle. Bytes of this read are undefined.
	ErrReset
	// ErrRefused: the endpoint, or the check before it, said no: outside of a region, withdrawn, no capability, over
	// a limit. Bytes of this read are undefined; asking again unchanged is pointless.
	ErrRefused
	// ErrStale: another incarnation answers there. Bytes of this read are undefined; the endpoint's description is old.
	ErrStale
	// ErrFalseCompletion: a read ended faster than the fabric can carry it. Its bytes must not be trusted.
	ErrFalseCompletion
	// ErrUnavailable: this transport can't be used here, for the reason told. Nothing was tried; another may serve.
	ErrUnavailable
	// ErrAborted: the reader gave up by Abort or Close. Bytes of this read are undefined.
	ErrAborted
	// ErrProtocol: the other side sent what no correct peer sends. Bytes of this read are undefined; the connection is gone.
	ErrProtocol
	// ErrQuarantined: the transport gave up on a transfer that it can't prove to have ended. The destination stays
	// held and may be written at any time: it must be neither reused nor unmapped. Memory.Holds tells when it ended.
	ErrQuarantined
)

var kindText = map[Kind][2]string{
	ErrUnreachable:     {"unreachable", "nothing was read"},
	ErrTimeout:         {"no progress within the deadline", "bytes of this read are undefined"},
	ErrReset:           {"connection lost", "bytes of this read are undefined"},
	ErrRefused:         {"refused", "bytes of this read are undefined, the peer stays usable"},
	ErrStale:           {"another incarnation answers", "bytes of this read are undefined, the endpoint's description is old"},
	ErrFalseCompletion: {"faster than the fabric can carry", "bytes of this read must not be trusted"},
	ErrUnavailable:     {"transport unavailable", "nothing was tried"},
	ErrAborted:         {"aborted by the reader", "bytes of this read are undefined"},
	ErrProtocol:        {"protocol broken by the other side", "bytes of this read are undefined, the connection is gone"},
	ErrQuarantined:     {"the transfer never ended", "its destination may still be written and stays held"},
}

// String names the kind in a few words.
func (k Kind) String() string {
	if t, ok := kindText[k]; ok {
		return t[0]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Leaves says what an error of this kind leaves behind.
func (k Kind) Leaves() string { return kindText[k][1] }

// Error makes a kind usable as a target of errors.Is.
func (k Kind) Error() string { return k.String() }

// Error is what every operation of a transport fails with.
type Error struct {
	Kind      Kind
	Op        string // "connect", "read", "register", …
	Transport string
	Rank      int   // the other endpoint's rank, -1 where there is none
	Err       error // the cause, may be nil
}

// Error tells operation, other side, kind, cause, and what is left behind.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Transport, e.Op)
	if e.Rank >= 0 {
		fmt.Fprintf(&b, " from rank %d", e.Rank)
	}
	fmt.Fprintf(&b, ": %s", e.Kind)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if l := e.Leaves(); l != "" {
		fmt.Fprintf(&b, " (%s)", l)
	}
	return b.String()
}

// Leaves says what is left behind: by the kind, and nothing at all by a connect.
func (e *Error) Leaves() string {
	if e.Op == "connect" {
		return ErrUnreachable.Leaves()
	}
	return e.Kind.Leaves()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the error's kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// KindOf gives the kind of err, 0 if it carries none. Ends of contexts carry none: they are no terminal state.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

// ErrBusy is returned by Memory.Close while a region or a transfer holds the memory. The mapping is untouched; close
// it again when the holders are gone.
var ErrBusy = errors.New("memory is in use")

// ErrClosed is returned for memory, transports and peers after their Close. Nothing was done.
var ErrClosed = errors.New("closed")
