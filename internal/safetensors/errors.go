package safetensors

import (
	"errors"
	"strings"
)

// What can be wrong with a file; an [Error] wraps exactly one of them. No
// mapping, no descriptor and no other state is left behind by any.
var (
	ErrTruncated = errors.New("file is truncated")
	ErrJSON      = errors.New("header is not the JSON that the format asks for")
	ErrLimit     = errors.New("header exceeds a limit")
	ErrDuplicate = errors.New("name appears twice")
	ErrDType     = errors.New("dtype is unknown")
	ErrShape     = errors.New("shape is impossible")
	ErrRange     = errors.New("byte range lies outside the file")
	ErrLength    = errors.New("byte range doesn't fit dtype and shape")
	ErrOverlap   = errors.New("byte ranges overlap")
	ErrHole      = errors.New("bytes belong to no tensor")
)

// Error says which file was refused, at which tensor, and why.
type Error struct {
	File     string
	Tensor   string // empty when the header as a whole is wrong
	Kind     error  // one of the sentinels of this package
	Found    string
	Expected string
}

// Error is one line: file, tensor, what is wrong, what was found and what was expected.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("safetensors file " + e.File)
	if e.Tensor != "" {
		b.WriteString(": tensor " + e.Tensor)
	}
	b.WriteString(": " + e.Kind.Error())
	if e.Found != "" {
		b.WriteString(": found " + e.Found)
	}
	if e.Expected != "" {
		b.WriteString(", expected " + e.Expected)
	}
	return b.String()
}

// Unwrap makes errors.Is find the kind.
func (e *Error) Unwrap() error { return e.Kind }
