package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// telling is an installer whose engine can be asked for a capture.
type telling struct {
	refit.Installer
	path string
	err  error
}

func (e telling) Capture(context.Context) (string, error) { return e.path, e.err }

func TestTheEngineIsAskedForACaptureWhereNoneIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		named     string
		installer refit.Installer
		want      string // the capture that is read
		fails     string // what the error says
		code      int
	}{
		"a file is named":      {"named.json", telling{err: errors.New("asked")}, "named.json", "", 0},
		"the engine tells":     {"", telling{path: "told.json"}, "told.json", "", 0},
		"the engine fails":     {"", telling{err: errors.New("no model")}, "", "no model", cli.ExitUnavailable},
		"nobody can be asked":  {"", refit.Shm, "", "--capture", cli.ExitUsage},
		"a file for such ones": {"named.json", refit.Shm, "named.json", "", 0},
	} {
		cfg := config{Capture: c.named}
		err := cfg.askCapture(t.Context(), c.installer, slog.New(slog.DiscardHandler))
		if cfg.Capture != c.want || (err != nil) != (c.fails != "") {
			t.Errorf("%s: capture %q, error %v", name, cfg.Capture, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.fails) || cli.Code(err) != c.code) {
			t.Errorf("%s: %v with code %d, want %q and %d", name, err, cli.Code(err), c.fails, c.code)
		}
	}
}
