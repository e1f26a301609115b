package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/cli"
)

// origin is the file in a generated folder that tells what it was generated from. It is written last.
const origin = "drydock-generated.json"

// generation is the content of the origin file.
type generation struct {
	Seed uint64 `json:"seed"`
	Tiny bool   `json:"tiny"`
}

// unfinished is part of the names of what an interrupted generation leaves in its folder.
const unfinished = ".generating"

// MakeCheckpoint generates the demo's checkpoint as dir, which may exist, even as a mount point, if it is empty. A folder
// that was generated from the same options already is left alone; made tells which.
func MakeCheckpoint(ctx context.Context, dir string, o checkpoint.GenerateOptions) (made bool, err error) {
	want := generation{Seed: o.Seed, Tiny: o.Tiny}
	have, err := readOrigin(dir)
	switch {
	case err == nil && have == want:
		return false, nil
	case err == nil:
		return false, cli.WithCode(cli.ExitInput, fmt.Errorf("%s holds a checkpoint of seed %d, tiny %t: name another folder, or empty this one", dir, have.Seed, have.Tiny))
	case !errors.Is(err, fs.ErrNotExist):
		return false, cli.WithCode(cli.ExitInput, err)
	}
	if err := clearUnfinished(dir); err != nil {
		return false, cli.WithCode(cli.ExitInput, err)
	}
	if err := generateInto(ctx, dir, o, want); err != nil {
		return false, writeError(fmt.Errorf("make a checkpoint in %s: %w", dir, err))
	}
	return true, nil
}

func readOrigin(dir string) (generation, error) {
	var g generation
	b, err := cli.ReadFile(filepath.Join(dir, origin), maxSmall)
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(b, &g); err != nil {
		return g, fmt.Errorf("read %s: %w", filepath.Join(dir, origin), err)
	}
	return g, nil
}

// clearUnfinished makes the folder, removes the remains of interrupted generations, and refuses if anything else is there.
func clearUnfinished(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), unfinished) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		} else if e.Name() != "lost+found" {
			return fmt.Errorf("%s holds %s and was not generated here: name another folder, or empty this one", dir, e.Name())
		}
	}
	return nil
}

// generateInto generates below dir and moves the files up, the index and the origin last: until then the folder is
// no checkpoint. A rename of the whole folder would be simpler, but a mount point can't be replaced.
func generateInto(ctx context.Context, dir string, o checkpoint.GenerateOptions, g generation) error {
	below := filepath.Join(dir, unfinished)
	if err := checkpoint.Generate(ctx, below, o); err != nil {
		return err
	}
	entries, err := os.ReadDir(below)
	if err != nil {
		return err
	}
	var last []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".index.json") {
			last = append(last, e.Name())
		} else if err := os.Rename(filepath.Join(below, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	for _, name := range last {
		if err := os.Rename(filepath.Join(below, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	b, err := json.Marshal(g)
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(below), WriteFile(filepath.Join(dir, origin), append(b, '\n')))
}

// WriteFile writes a file whole or not at all.
func WriteFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // nothing is left of it after the rename
	_, err = bytes.NewReader(b).WriteTo(f)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

// writeError tells a full disk from a folder that can't be written.
func writeError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return cli.WithCode(cli.ExitCapacity, err)
	}
	return cli.WithCode(cli.ExitInput, err)
}
