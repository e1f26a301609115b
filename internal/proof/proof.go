// Package proof recomputes a destination's arena from checkpoint files and compares every byte.
package proof

import (
	"context"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
)

// Input says what to prove.
type Input struct {
	Arena      string // path of the arena file
	Checkpoint *checkpoint.Checkpoint
	Capture    *capturegen.Capture
	Case       *capturegen.Case // the arena's rank, one of the capture's
	Seed       uint64           // of checkpoint.Mutate
	Version    uint64           // of checkpoint.Mutate
}

// Report is what was compared.
type Report struct {
	Params int
	Nbytes int64
}

// Verify recomputes every parameter and compares it with the arena byte for byte.
// The first difference is a *Difference.
func Verify(ctx context.Context, in Input) (Report, error) { panic("not yet") }

// Difference is the first element of a parameter that isn't what the checkpoint says.
type Difference struct {
	Arena, Param    string
	Element         int64 // row-major index in the parameter
	Expected, Found []byte
}

func (d *Difference) Error() string { panic("not yet") }
