package plan

import (
	"errors"
	"fmt"
	"strings"
)

// What a plan or table can be refused for. Nothing has moved and nothing is kept when one is returned:
// inputs are untouched, and there is no partial plan. Test with errors.Is.
var (
	ErrLayout        = errors.New("bad layout")               // columns that don't fit each other, a box outside its shape, a limit
	ErrRegion        = errors.New("outside its region")       // a shard's bytes leave the registered region, or overflow
	ErrConflict      = errors.New("ranks disagree")           // one source, two dtypes or shapes
	ErrUnknownSource = errors.New("unknown source")           // no rank publishes it
	ErrUnknownParam  = errors.New("unknown parameter")        // a copy, fill or alias names none
	ErrExcluded      = errors.New("excluded parameter")       // a copy or fill into a parameter that no copy can make
	ErrView          = errors.New("view refused")             // an op-chain that raises, copies, or is not supported
	ErrShape         = errors.New("shapes differ")            // the view's against the copy's
	ErrDest          = errors.New("outside its parameter")    // a copy's or fill's region leaves the parameter
	ErrDType         = errors.New("element types differ")     // a copy recorded for another type than the parameter has
	ErrCast          = errors.New("cast refused")             // narrowing without leave, or an integer
	ErrUncovered     = errors.New("no shard holds")           // boxes of a source that no rank holds
	ErrHole          = errors.New("destination hole")         // bytes that nothing writes
	ErrOverlap       = errors.New("destination overlap")      // bytes that are written more than once
	ErrLimit         = errors.New("beyond a limit")           // input larger than this package handles
	ErrProof         = errors.New("proof of coverage failed") // the plan itself is wrong: a defect of this package
)

// Fault is one reason for a refusal.
type Fault struct {
	Err    error   // one of the sentinels above, or an error that wraps one
	Rank   int     // destination rank; -1 when it is about the table
	Param  string  // "" when it is about no parameter
	Source string  // "" when it is about no source
	Copy   int     // index in Dest.Copies; -1: none
	Box    []int64 // lo0,hi0,… in elements of the source or parameter; nil: none
	Ranks  []int   // trainer ranks concerned
	Detail string
}

// Error says what, where, found and expected in one line.
func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString("plan: ")
	b.WriteString(f.Err.Error())
	if f.Param != "" {
		fmt.Fprintf(&b, ", parameter %q", f.Param)
	}
	if f.Copy >= 0 {
		fmt.Fprintf(&b, ", copy %d", f.Copy)
	}
	if f.Source != "" {
		fmt.Fprintf(&b, ", source %q", f.Source)
	}
	if f.Rank >= 0 {
		fmt.Fprintf(&b, ", destination rank %d", f.Rank)
	}
	if f.Box != nil {
		b.WriteString(", box " + boxString(f.Box))
	}
	if len(f.Ranks) > 0 {
		fmt.Fprintf(&b, ", ranks %v", f.Ranks)
	}
	if f.Detail != "" {
		b.WriteString(": " + f.Detail)
	}
	return b.String()
}

// Unwrap makes errors.Is see the sentinel.
func (f *Fault) Unwrap() error { return f.Err }

// maxFaults bounds how many faults an error keeps: enough to mend a capture, too few to fill a log.
const maxFaults = 100

// Refused holds every reason why a plan was not made, up to the first hundred.
type Refused struct {
	Faults []*Fault
	More   int // faults beyond those kept
}

// add keeps the fault, or counts it when there are enough.
func (r *Refused) add(f *Fault) {
	if len(r.Faults) == maxFaults {
		r.More++
		return
	}
	r.Faults = append(r.Faults, f)
}

// err returns the refusal if there is one. A nil *Refused in an error would not be nil.
func (r *Refused) err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	return r
}

// Error names the first faults and counts the others.
func (r *Refused) Error() string {
	const shown = 5
	var b strings.Builder
	for i, f := range r.Faults {
		if i == shown {
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Error())
	}
	if n := len(r.Faults) + r.More - shown; n > 0 {
		fmt.Fprintf(&b, "; and %d more", n)
	}
	return b.String()
}

// Unwrap makes errors.Is and errors.As see each fault.
func (r *Refused) Unwrap() []error {
	out := make([]error, len(r.Faults))
	for i, f := range r.Faults {
		out[i] = f
	}
	return out
}

// boxString draws lo0,hi0,lo1,hi1,… as [lo0:hi0, lo1:hi1].
func boxString(box []int64) string {
	var b strings.Builder
	b.WriteByte('[')
	for d := 0; d+1 < len(box); d += 2 {
		if d > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d:%d", box[d], box[d+1])
	}
	b.WriteByte(']')
	return b.String()
}
