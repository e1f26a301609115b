package checkpoint

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// GenerateOptions sizes the generated checkpoint. The zero value is the demo's, some 200 MB.
type GenerateOptions struct {
	Seed uint64
	Tiny bool // a few hundred kilobytes of the same form, for tests
}

// chunkBytes is what one goroutine makes and writes at a time: large against a system call, small against a cache.
const chunkBytes = 256 << 10

// Generate writes a mixture-of-experts checkpoint as dir, which must be absent or empty; the same
// options give the same bytes. The folder is made under another name and renamed: it is there whole or not at all.
func Generate(ctx context.Context, dir string, o GenerateOptions) error {
	dir = filepath.Clean(dir)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("generate checkpoint: %w", err)
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".partial-")
	if err != nil {
		return fmt.Errorf("generate checkpoint: %w", err)
	}
	defer func() { _ = os.RemoveAll(partial) }() // nothing is left of it after the rename
	if err := generate(ctx, partial, o); err != nil {
		return fmt.Errorf("generate checkpoint %s: %w", dir, err)
	}
	if err := os.Rename(partial, dir); err != nil {
		return fmt.Errorf("generate checkpoint (the folder must be absent or empty): %w", err)
	}
	return nil
}

// generate writes the files of a checkpoint into an empty folder.
func generate(ctx context.Context, dir string, o GenerateOptions) error {
	m := demoModel
	if o.Tiny {
		m = tinyModel
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("open the folder to readers: %w", err)
	}
	if err := writeJSON(filepath.Join(dir, configName), m.config()); err != nil {
		return err
	}
	shards := shard(m.tensors(), m.shardBytes)
	for i, specs := range shards {
		path := filepath.Join(dir, shardName(i, len(shards)))
		if err := writeShard(ctx, path, specs, o.Seed); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Base(path), err)
		}
	}
	return writeIndex(dir, shards)
}

// shardName is how transformers names the files of a sharded checkpoint.
func shardName(i, of int) string { return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, of) }

// shard cuts the tensors in order into files of at most limit bytes, or one tensor.
func shard(tensors []generated, limit int64) [][]generated {
	var shards [][]generated
	room := int64(0)
	for _, t := range tensors {
		if room < t.nbytes() || len(shards) == 0 {
			shards, room = append(shards, nil), limit
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], t)
		room -= t.nbytes()
	}
	return shards
}

// writeShard writes one file, its header last.
func writeShard(ctx context.Context, path string, tensors []generated, seed uint64) (err error) {
	specs := make([]safetensors.Spec, len(tensors))
	for i, t := range tensors {
		specs[i] = t.Spec
	}
	layout, err := safetensors.NewLayout(specs, map[string]string{"format": "pt"}, safetensors.PageAlign)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() {
		if closing := f.Close(); err == nil && closing != nil {
			err = fmt.Errorf("close: %w", closing)
		}
	}()
	// At full length before any byte, so that chunks can be written in any order by several goroutines.
	if err := f.Truncate(layout.Nbytes); err != nil {
		return fmt.Errorf("size: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, t := range layout.Tensors {
		for lo := int64(0); lo < t.Nbytes; lo += chunkBytes {
			group.Go(func() error { return writeChunk(ctx, f, tensors[i].fill, t, lo, seed) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if _, err := f.WriteAt(layout.Header, 0); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	return nil
}

// writeChunk makes and writes the bytes of t from lo, one hash for each eight.
func writeChunk(ctx context.Context, f *os.File, fill func(uint64) uint64, t safetensors.Tensor, lo int64, seed uint64) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("make tensor %s: %w", t.Name, err)
	}
	n := min(chunkBytes, t.Nbytes-lo)
	b := make([]byte, (n+7)&^7)                          // whole words; the last may be longer than the tensor
	counter := streamKey(t.Name, seed, 0) + uint64(lo)/8 // chunks begin at whole words, so cutting them elsewhere changes nothing
	for at := 0; at < len(b); at += 8 {
		binary.LittleEndian.PutUint64(b[at:], fill(mix(counter)))
		counter++
	}
	if _, err := f.WriteAt(b[:n], t.Offset+lo); err != nil {
		return fmt.Errorf("write tensor %s: %w", t.Name, err)
	}
	return nil
}

// writeIndex writes the file by which readers find each tensor's file.
func writeIndex(dir string, shards [][]generated) error {
	weights, total := map[string]string{}, int64(0)
	for i, tensors := range shards {
		for _, t := range tensors {
			weights[t.Name] = shardName(i, len(shards))
			total += t.nbytes()
		}
	}
	return writeJSON(filepath.Join(dir, indexName), map[string]any{
		"metadata": map[string]any{"total_size": total}, "weight_map": weights,
	})
}

// writeJSON writes a small file for people and programs.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}
