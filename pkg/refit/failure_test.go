package refit

import (
	"context"
	"fmt"
	"testing"

	"github.com/drydock-rl/drydock/pkg/messages"
)

func TestErrorsOfTheControlPlaneHaveTheirClass(t *testing.T) {
	t.Parallel()
	for kind, want := range map[error]Class{
		context.Canceled:          Cancelled,
		messages.ErrLeaseLost:     LeaseLost,
		messages.ErrContradiction: Torn,
		messages.ErrMalformed:     Torn,
		messages.ErrSchema:        Torn,
		messages.ErrLimit:         Torn,
		messages.ErrRetired:       Gone,
		messages.ErrNotCommitted:  Gone,
		messages.ErrAbandoned:     Gone,
		messages.ErrFenced:        Superseded,
		messages.ErrUnavailable:   ControlPlane,
		messages.ErrIncomplete:    ControlPlane,
		context.DeadlineExceeded:  ControlPlane,
		messages.ErrPermission:    ControlPlane,
	} {
		err := &messages.RankError{Op: "assemble", Ranks: []int{1}, Err: fmt.Errorf("wrapped: %w", kind)}
		if got := ClassOf(controlError("assemble the version", err)); got != want {
			t.Errorf("%v: class %s, want %s", kind, got, want)
		}
	}
}
