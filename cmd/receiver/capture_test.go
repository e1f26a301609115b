package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/internal/wiring"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// telling is an installer whose engine can be asked for a capture.
type telling struct {
	refit.Installer
	path   string
	err    error
	before func(context.Context) // what is waited for first
}

func (e telling) Capture(ctx context.Context) (string, error) {
	if e.before != nil {
		e.before(ctx)
	}
	return e.path, e.err
}

func TestTheEngineIsAskedForACaptureWhereNoneIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		named     string
		installer refit.Installer
		asked     bool
		fails     string // what the error says
	}{
		"a file is named":      {"named.json", telling{}, false, ""},
		"the engine can tell":  {"", telling{}, true, ""},
		"nobody can be asked":  {"", refit.Shm, false, "--capture"},
		"a file for such ones": {"named.json", refit.Shm, false, ""},
	} {
		cfg := config{Capture: c.named}
		engine, err := cfg.asks(c.installer)
		if (engine != nil) != c.asked || (err != nil) != (c.fails != "") {
			t.Errorf("%s: asked %t, error %v", name, engine != nil, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.fails) || cli.Code(err) != cli.ExitUsage) {
			t.Errorf("%s: %v with code %d", name, err, cli.Code(err))
		}
	}
}

// TestAReceiverThatWaitsForACaptureIsListed has the engine tell only when the receiver's status says that it is waited for.
func TestAReceiverThatWaitsForACaptureIsListed(t *testing.T) {
	t.Parallel()
	control := natstest.Open(t, natstest.Start(t, natsd.Options{}), messages.Config{Model: "m", Memory: true})
	p := &wiring.Process{Log: slog.New(slog.DiscardHandler), Control: control}
	cfg := config{Name: "host", TP: 1, Ranks: []int{0}}
	listed := false
	engine := telling{path: writtenCapture(t), before: func(ctx context.Context) {
		for ctx.Err() == nil && !listed {
			all, err := control.Statuses(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			listed = len(all) == 1 && all[0].Name == "host" && strings.HasPrefix(all[0].StageState, "waiting for the engine")
		}
	}}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	dests, err := cfg.awaitCapture(ctx, p, engine)
	if err != nil || len(dests) != 1 || !listed {
		t.Errorf("%d destinations, listed %t: %v", len(dests), listed, err)
	}

	_, err = cfg.awaitCapture(ctx, p, telling{err: errors.New("no model")})
	if err == nil || !strings.Contains(err.Error(), "no model") || cli.Code(err) != cli.ExitUnavailable {
		t.Errorf("%v with code %d", err, cli.Code(err))
	}
}

// writtenCapture writes the default capture of a small checkpoint.
func writtenCapture(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := checkpoint.Generate(t.Context(), dir, checkpoint.GenerateOptions{Seed: 1, Tiny: true}); err != nil {
		t.Fatal(err)
	}
	source, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	c, err := capturegen.Generate(source, 1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "capture.json")
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(c.Encode(f), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
