// Package capturegen reads and writes captures, and makes the default one of a checkpoint.
//
// A capture says what a destination needs: for each destination rank (a case) its parameters, which view of which
// source is copied to which place of which parameter, which places are set to a constant, and which names share storage.
// The file format is drydock.capture.v1, JSON or gzip of it. A recorded capture holds what an engine's own loader did; the
// generated one ([Generate]) holds what vLLM's loaders do with the names of the Llama, Qwen and Mixtral families: fused
// qkv_proj and gate_up_proj, expert stacks w13_weight and w2_weight, column slices of o_proj and down_proj, vocabularies
// padded with zeros, key and value heads replicated when there are fewer than ranks. Sources
// with other names are copied whole to every rank under the same name.
//
// The law of a case: its copies and fills together write each element of each parameter that isn't excluded exactly once. The
// package makes such cases, but doesn't prove it of those that it reads. Views are not replayed here.
package capturegen

import (
	"fmt"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// Schema is the file format's name.
const Schema = "drydock.capture.v1"

// Capture is one file.
type Capture struct {
	Schema    string         `json:"schema"`
	Engine    string         `json:"engine"`
	Family    string         `json:"family"`
	ModelType string         `json:"model_type"`
	Config    map[string]any `json:"config"`
	Sources   []Source       `json:"sources"` // sorted by name
	Cases     []Case         `json:"cases"`
	Notes     []string       `json:"notes,omitempty"` // what the generator could not split, one sentence each
}

// Source is a tensor of the checkpoint.
type Source struct {
	Name  string            `json:"name"`
	DType safetensors.DType `json:"dtype"`
	Shape []int64           `json:"shape"`
}

// Case is what one destination rank needs.
type Case struct {
	Arch   string            `json:"arch"`
	TP     int               `json:"tp"`
	Rank   int               `json:"rank"`
	EP     bool              `json:"ep"`
	Params []Param           `json:"params"`
	Copies []Copy            `json:"copies"`
	Fills  []Fill            `json:"fills"`
	Alias  map[string]string `json:"alias"`  // other name: name in Params
	Unread []int             `json:"unread"` // positions in the sources
}

// Param is one destination parameter, row-major and contiguous. The digests are
// of recorded captures only; their absence doesn't mean that a parameter is excluded.
type Param struct {
	Name     string            `json:"name"`
	DType    safetensors.DType `json:"dtype"`
	Shape    []int64           `json:"shape"`
	XXH3     string            `json:"xxh3_64,omitempty"` // of all bytes, hex
	SHA256   string            `json:"sha256,omitempty"`  // of all bytes, hex
	Excluded string            `json:"excluded,omitempty"`
}

// Copy writes a view of a source to a strided place of a parameter.
type Copy struct {
	Source int
	Ops    []Op
	Param  int
	Place
}

// Fill sets a strided place of a parameter to a constant.
type Fill struct {
	Param int
	Place
	Value float64
}

// Place is a strided view of a parameter, in elements of its dtype.
type Place struct {
	Offset        int64
	Shape, Stride []int64
}

// Op is one view operation with torch's name and arguments. Arguments are int64, nil,
// []any of them, or map[string]any for the keys of __getitem__.
type Op struct {
	Name string
	Args []any
}

// Case returns the case of a destination rank.
func (c *Capture) Case(tp, rank int, ep bool) (*Case, error) {
	for i := range c.Cases {
		if x := &c.Cases[i]; x.TP == tp && x.Rank == rank && x.EP == ep {
			return x, nil
		}
	}
	return nil, fmt.Errorf("capture of %s has no case for tensor parallel %d, rank %d, expert parallel %t (it has %s)",
		c.Family, tp, rank, ep, c.listCases())
}

// listCases names the first few cases for an error.
func (c *Capture) listCases() string {
	text := fmt.Sprintf("%d cases", len(c.Cases))
	for i, x := range c.Cases {
		if i == 8 {
			return text + ", …"
		}
		text += fmt.Sprintf(", tp %d rank %d ep %t", x.TP, x.Rank, x.EP)
	}
	return text
}
