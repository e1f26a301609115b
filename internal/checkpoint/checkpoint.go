// Package checkpoint opens Hugging Face style folders of safetensors files, generates the demo's, and changes values by version.
package checkpoint

import "github.com/drydock-rl/drydock/internal/safetensors"

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
	tensors []Tensor
	config  Config
}

// Open maps the files of dir: those that model.safetensors.index.json lists, or model.safetensors, or the
// only *.safetensors. A path of a single safetensors file is taken too.
func Open(dir string) (*Checkpoint, error) { panic("not yet") }

// Dir is the path that was opened.
func (c *Checkpoint) Dir() string { return c.dir }

// Tensors are all tensors, sorted by name. Not to be changed.
func (c *Checkpoint) Tensors() []Tensor { return c.tensors }

// Find returns the tensor of that name.
func (c *Checkpoint) Find(name string) (Tensor, bool) { panic("not yet") }

// Nbytes is the sum over all tensors.
func (c *Checkpoint) Nbytes() int64 { panic("not yet") }

// Config is the folder's config.json, zero when there is none.
func (c *Checkpoint) Config() Config { return c.config }

// Close unmaps all files. It may be repeated.
func (c *Checkpoint) Close() error { panic("not yet") }
