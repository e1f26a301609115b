package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/internal/trainer"
)

// workspace is the demo's files: a folder for logs, checkpoint and capture, and one for arenas.
type workspace struct {
	dir, arenas string
	source      *checkpoint.Checkpoint
	checkpoint  string // path of its folder
	capture     *capturegen.Capture
	captureFile string
	generated   bool
}

// newWorkspace makes the folders, and the checkpoint and the capture where none is given.
func newWorkspace(ctx context.Context, o Options) (*workspace, error) {
	w := &workspace{}
	if err := w.fill(ctx, o); err != nil {
		return nil, errors.Join(err, w.remove())
	}
	return w, nil
}

func (w *workspace) fill(ctx context.Context, o Options) (err error) {
	if w.dir, err = os.MkdirTemp("", "drydock-demo-"); err != nil {
		return cli.WithCode(cli.ExitCapacity, fmt.Errorf("make a folder for the demo: %w", err))
	}
	if err := os.MkdirAll(o.ArenaDir, 0o700); err != nil {
		return cli.WithCode(cli.ExitCapacity, fmt.Errorf("make the arena folder: %w", err))
	}
	if w.arenas, err = os.MkdirTemp(o.ArenaDir, "drydock-demo-"); err != nil {
		return cli.WithCode(cli.ExitCapacity, fmt.Errorf("make a folder for arenas: %w", err))
	}
	if w.checkpoint = o.Checkpoint; w.checkpoint == "" {
		w.generated, w.checkpoint = true, filepath.Join(w.dir, "checkpoint")
		if err := checkpoint.Generate(ctx, w.checkpoint, checkpoint.GenerateOptions{Seed: o.Seed}); err != nil {
			return cli.WithCode(cli.ExitCapacity, fmt.Errorf("generate the demo's checkpoint: %w", err))
		}
	}
	if w.source, err = checkpoint.Open(w.checkpoint); err != nil {
		return cli.WithCode(cli.ExitInput, err)
	}
	return cli.WithCode(cli.ExitInput, errors.Join(w.cuttable(o), w.capturing(o)))
}

// cuttable refuses layouts that don't fit the number of trainers before anything runs.
func (w *workspace) cuttable(o Options) error {
	kind, err := shardlayout.ParseKind(o.Layout)
	if err != nil {
		return err
	}
	_, err = trainer.Cut(w.source, kind, 0, o.Trainers, tiles.Options{})
	return err
}

// capturing reads the capture that was given, or makes one.
func (w *workspace) capturing(o Options) (err error) {
	if w.captureFile = o.Capture; w.captureFile != "" {
		b, err := os.ReadFile(o.Capture)
		if err != nil {
			return fmt.Errorf("read capture: %w", err)
		}
		if w.capture, err = capturegen.Decode(b); err != nil {
			return fmt.Errorf("read capture %s: %w", o.Capture, err)
		}
		return nil
	}
	if w.capture, err = capturegen.Generate(w.source, o.Receivers); err != nil {
		return fmt.Errorf("make a capture for %s: %w", w.checkpoint, err)
	}
	w.captureFile = filepath.Join(w.dir, "capture.json")
	f, err := os.Create(w.captureFile)
	if err != nil {
		return err
	}
	return errors.Join(w.capture.Encode(f), f.Close())
}

// nbytes is the size of the checkpoint.
func (w *workspace) nbytes() int64 { return w.source.Nbytes() }

func (w *workspace) log(name string) string { return filepath.Join(w.dir, name+".log") }

// arena is the file that a receiver serves for a rank; receiver r has rank r only.
func (w *workspace) arena(rank int) string {
	return filepath.Join(w.arenas, receiverName(rank), "current", fmt.Sprintf("rank-%d.safetensors", rank))
}

// close ends the use of the checkpoint's files and leaves them.
func (w *workspace) close() error {
	if w.source == nil {
		return nil
	}
	return w.source.Close()
}

// remove leaves nothing behind.
func (w *workspace) remove() error {
	errs := []error{w.close()}
	for _, dir := range []string{w.dir, w.arenas} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}
