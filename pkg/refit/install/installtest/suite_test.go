package installtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/refit"
)

// engine is the plainest engine: a Go function in this process.
type engine struct {
	served  Served
	refuse  bool
	gone    bool
	stalled chan struct{}
}

func (e *engine) install(ctx context.Context, in refit.Installation) (refit.Report, error) {
	switch {
	case ctx.Err() != nil:
		return refit.Report{}, ctx.Err()
	case e.refuse:
		e.refuse = false
		return refit.Report{}, errors.New("these weights are not mine")
	case e.gone:
		return refit.Report{}, refit.Unreachable(errors.New("no engine"))
	case e.stalled != nil:
		select {
		case <-e.stalled:
		case <-ctx.Done():
			return refit.Report{}, refit.Unknown(ctx.Err())
		}
	}
	e.served = Served{Key: in.Key.String(), Files: in.Files}
	return refit.Report{Pause: time.Nanosecond}, nil
}

func TestAFunctionIsAnInstaller(t *testing.T) {
	Conformance(t, func(*testing.T) Bench {
		e := &engine{}
		return Bench{
			Installer: refit.InstallerFunc(e.install),
			Served:    func() Served { return e.served },
			Refuse:    func() { e.refuse = true },
			Vanish:    func() func() { e.gone = true; return func() { e.gone = false } },
			Stall: func() func() {
				e.stalled = make(chan struct{})
				return func() { close(e.stalled); e.stalled = nil }
			},
			Pauses: true,
		}
	})
}
