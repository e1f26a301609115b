// Package checkpoint opens folders of safetensors files as Hugging Face writes them, generates the
// demo's own, and defines how values change from version to version.
//
// It never writes into a folder that it did not generate, and never copies tensors: a [Checkpoint] is a set of
// read-only mappings. A folder's tensors are known by name only; which file holds one is of interest to error messages.
//
// The law of versions, kept by [Mutate]: an element's value in a version is a function of its value in the
// checkpoint, the tensor's name, its row-major index, the seed and the version. It doesn't depend on how the tensor is
// cut, so publishers change their shards and a proof changes the whole tensor, and both get the same bytes.
package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// Tensor is one tensor of a checkpoint.
//
// Sub-byte elements (F4, F6) are carried as bytes: DType is U8, Shape counts bytes, Packed has the file's dtype.
type Tensor struct {
	Name   string
	DType  safetensors.DType // never a sub-byte type
	Shape  []int64           // elements of DType
	Packed safetensors.DType // the file's dtype when it is a sub-byte type, else empty
	File   string            // base name of the file that holds it
	Bytes  []byte            // read-only view of the mapping, row-major
}

// Checkpoint is an open folder. Its tensors' views die with Close.
type Checkpoint struct {
	dir     string
	files   []*safetensors.File
	tensors []Tensor // sorted by name
	config  Config
}

// Open maps the files of dir: those that model.safetensors.index.json lists, or model.safetensors, or the
// only *.safetensors. A path of a single safetensors file is taken too. An error leaves nothing mapped.
func Open(dir string) (*Checkpoint, error) {
	c, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", dir, err)
	}
	return c, nil
}

// open is Open without the path in its errors.
func open(dir string) (_ *Checkpoint, err error) {
	found, err := locate(dir)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{dir: dir}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	if c.config, err = readConfig(found.dir); err != nil {
		return nil, err
	}
	for _, name := range found.files {
		if err := c.add(found, name); err != nil {
			return nil, err
		}
	}
	return c, c.settle(found)
}

// Dir is the path that was opened.
func (c *Checkpoint) Dir() string { return c.dir }

// Tensors are all tensors, sorted by name. Not to be changed.
func (c *Checkpoint) Tensors() []Tensor { return c.tensors }

// Find returns the tensor of that name.
func (c *Checkpoint) Find(name string) (Tensor, bool) {
	i, found := slices.BinarySearchFunc(c.tensors, name, func(t Tensor, name string) int { return cmp.Compare(t.Name, name) })
	if !found {
		return Tensor{}, false
	}
	return c.tensors[i], true
}

// Nbytes is the sum over all tensors.
func (c *Checkpoint) Nbytes() int64 {
	total := int64(0)
	for i := range c.tensors {
		total += int64(len(c.tensors[i].Bytes))
	}
	return total
}

// Config is the folder's config.json, zero when there is none.
func (c *Checkpoint) Config() Config { return c.config }

// Close unmaps all files. It may be repeated.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	c.files, c.tensors = nil, nil
	return errors.Join(errs...)
}
