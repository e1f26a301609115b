package vllm

import (
	"errors"

	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/install/internal/rest"
)

var (
	// ErrPaused says that somebody else has paused the engine. Nothing was touched; the version can be tried again once they resume it.
	ErrPaused = errors.New("the engine is paused by somebody else")
	// ErrOwned says that another owner updates the engine. Nothing was touched. Two receivers for one engine is the usual reason.
	ErrOwned = errors.New("the engine is updated by somebody else")
	// ErrNoBackend says that the server runs without Drydock's back end, or without dev mode. Nothing was touched.
	ErrNoBackend = errors.New("the server lacks Drydock's back end")
	// ErrBroken says that a failed installation could not be taken back. The engine is paused and stays so: some rank holds no whole
	// version, or ranks hold different ones. Installing any version, the old one included, mends it.
	ErrBroken = errors.New("the engine holds no whole version and stays paused")
	// ErrConfused says that answers of workers arrive at the wrong calls, which an exception in a worker brings about for good.
	// Nothing that it says can be trusted; restart it.
	ErrConfused = errors.New("the engine mixes up the answers of its workers")
)

// marked gives an error of an engine that is as it was before its class.
func marked(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrPaused): // later it may not be
		return refit.Unreachable(err)
	}
	return rest.Marked(err)
}
