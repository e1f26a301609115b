package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/messages"
)

// Code is what went wrong, as clients decide by it. Codes are part of the API: they are added, never changed.
type Code string

// The codes, with what the client should do.
const (
	BadRequest      Code = "bad_request"         // the request is wrong; nothing was done
	LimitExceeded   Code = "limit_exceeded"      // the request goes beyond a limit, which the message names
	WrongModel      Code = "wrong_model"         // this sidecar serves another model
	NoArena         Code = "no_arena"            // attach first: the sidecar was started again, or the arena has ended
	StaleGeneration Code = "stale_generation"    // the files were made anew: attach and map again
	Superseded      Code = "superseded"          // a newer client has attached to this rank; give up
	RankTaken       Code = "rank_taken"          // another living process holds this rank
	ArenaBusy       Code = "arena_busy"          // another sidecar holds the arena's files, or the arena is being ended
	NoMemory        Code = "no_memory"           // the arena doesn't fit
	NotBegun        Code = "not_begun"           // no slot was handed out for this version
	WrongSlot       Code = "wrong_slot"          // another slot was handed out for this version
	VersionTaken    Code = "version_taken"       // an earlier life of this trainer has published this number: use a new job
	VersionEnded    Code = "version_ended"       // the version can't be read any more, or never will; go on with the next
	Fenced          Code = "fenced"              // a newer run exists; give up
	Incomplete      Code = "incomplete"          // the other ranks did not come in time; the version is ended
	Held            Code = "held"                // receivers read what must be free; wait, or ask again
	ControlDown     Code = "control_unavailable" // the message servers don't answer; ask again
	Denied          Code = "permission_denied"   // the message servers refuse this user
	DigestsPartial  Code = "digests_partial"     // not as many digests as the tiles of what is digested
	Unsupported     Code = "unsupported_version" // no such path or API version
	Internal        Code = "internal"            // anything else; the log has more
)

// statuses are the HTTP status of each code.
var statuses = map[Code]int{
	BadRequest: http.StatusBadRequest, LimitExceeded: http.StatusRequestEntityTooLarge, WrongModel: http.StatusConflict,
	NoArena: http.StatusNotFound, StaleGeneration: http.StatusConflict, Superseded: http.StatusConflict, RankTaken: http.StatusConflict,
	ArenaBusy: http.StatusConflict, NoMemory: http.StatusInsufficientStorage, NotBegun: http.StatusConflict, WrongSlot: http.StatusConflict,
	VersionTaken: http.StatusConflict, VersionEnded: http.StatusGone, Fenced: http.StatusConflict, Incomplete: http.StatusGatewayTimeout,
	Held: http.StatusConflict, ControlDown: http.StatusServiceUnavailable, Denied: http.StatusForbidden, DigestsPartial: http.StatusBadRequest,
	Unsupported: http.StatusNotFound, Internal: http.StatusInternalServerError,
}

// Error is a failure as the client sees it.
type Error struct {
	Code    Code     `json:"code"`
	Message string   `json:"message"`
	Retry   bool     `json:"retry"`             // the same request may succeed later
	Holders []string `json:"holders,omitempty"` // receivers that still read, with code held
	cause   error
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// causes turns the errors of the packages below into codes, the first that matches. A held version comes before a deadline,
// since that is how the wait for it ends.
var causes = []struct {
	is    error
	code  Code
	retry bool
}{
	{messages.ErrFenced, Fenced, false},
	{messages.ErrAbandoned, VersionEnded, false},
	{messages.ErrRetired, VersionEnded, false},
	{messages.ErrHeld, Held, true},
	{messages.ErrPermission, Denied, false},
	{messages.ErrUnavailable, ControlDown, true},
	{messages.ErrNoStream, ControlDown, true},
	{messages.ErrIncomplete, Incomplete, false},
	{messages.ErrLimit, LimitExceeded, false},
	{messages.ErrMalformed, BadRequest, false},
	{messages.ErrConflict, VersionEnded, false},
	{unix.ENOSPC, NoMemory, false},
	{unix.ENOMEM, NoMemory, false},
	{context.DeadlineExceeded, Incomplete, false},
	{context.Canceled, ArenaBusy, true},
}

// coded makes an *Error of any error; nil stays nil.
func coded(err error) *Error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	for _, c := range causes {
		if errors.Is(err, c.is) {
			e := &Error{Code: c.code, Message: err.Error(), Retry: c.retry, cause: err}
			var held *messages.HeldError
			if errors.As(err, &held) {
				e.Holders = held.Receivers
			}
			return e
		}
	}
	return &Error{Code: Internal, Message: err.Error(), cause: err}
}
