package sglang

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

func (i *Installer) call(ctx context.Context, timeout time.Duration, method, path string, body, out any) error {
	return i.server.Call(ctx, timeout, method, path, body, out)
}

// label is the version that the server shows.
func (i *Installer) label(ctx context.Context) (string, error) {
	var a struct {
		Version string `json:"weight_version"`
	}
	err := i.call(ctx, i.cfg.CallTimeout, http.MethodGet, "/get_model_info", nil, &a)
	return a.Version, err
}

func (i *Installer) pause(ctx context.Context) error {
	return i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/pause_generation", map[string]string{"mode": string(i.cfg.Mode)}, nil)
}

func (i *Installer) goOn(ctx context.Context) error {
	return i.call(ctx, i.cfg.CallTimeout, http.MethodPost, "/continue_generation", map[string]string{}, nil)
}

// load has the server read the folder, name the version and flush its cache.
func (i *Installer) load(ctx context.Context, in refit.Installation) error {
	var a struct {
		Success *bool  `json:"success"`
		Message string `json:"message"`
	}
	body := map[string]any{"model_path": in.Dir, "weight_version": in.Key.String(), "flush_cache": true}
	err := i.call(ctx, i.cfg.UpdateTimeout, http.MethodPost, "/update_weights_from_disk", body, &a)
	if err == nil && (a.Success == nil || !*a.Success) {
		err = fmt.Errorf("the server did not update: %s", a.Message)
	}
	return err
}

// checkFolder looks at what the server will load: one arena, sealed, labelled with this version, and nothing beside it. The
// tensors must be those of the version before: the server would take others without a word.
func (i *Installer) checkFolder(in refit.Installation) (shape string, err error) {
	if len(in.Files) != 1 || len(in.Peers) != 0 {
		return "", fmt.Errorf("%d files, %d other receivers: SGLang loads checkpoints, so the arena is one file of one rank "+
			"(drydock-capture checkpoint)", len(in.Files), len(in.Peers))
	}
	found, err := filepath.Glob(filepath.Join(escape(in.Dir), "*.safetensors"))
	if err != nil {
		return "", err
	}
	if len(found) != 1 || filepath.Clean(found[0]) != filepath.Clean(in.Files[0]) {
		return "", fmt.Errorf("folder %s holds %q, expected only %s: the server loads every file", in.Dir, found, in.Files[0])
	}
	f, err := safetensors.Open(in.Files[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, c := range []struct{ key, want string }{
		{arena.MetaModel, in.Model},
		{arena.MetaRun, strconv.FormatUint(in.Key.Run, 10)},
		{arena.MetaVersion, strconv.FormatUint(in.Key.Version, 10)},
	} {
		if got := f.Metadata[c.key]; got != c.want {
			return "", fmt.Errorf("arena %s: its label says %s %q, expected %q", in.Files[0], c.key, got, c.want)
		}
	}
	shape = shapeOf(&f.Header)
	if i.shape != "" && shape != i.shape {
		return "", errors.New("the arena has other tensors than the version before; the server would take them unchecked")
	}
	return shape, nil
}

// shapeOf writes down names, types and shapes.
func shapeOf(h *safetensors.Header) string {
	var b strings.Builder
	for _, t := range h.Tensors {
		fmt.Fprintf(&b, "%q %s %v\n", t.Name, t.DType, t.Shape)
	}
	return b.String()
}

// escape makes a folder's name one that Glob takes literally.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
