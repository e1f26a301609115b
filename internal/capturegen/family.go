package capturegen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/safetensors"
)

// vocabularyPad is what vLLM rounds vocabularies up to, rows.
const vocabularyPad = 64

// family turns source names into parameters.
//
// Each rule looks for all the sources that it would fuse; one that finds its set incomplete or of
// unexpected shapes leaves them to be copied whole. A dimension that doesn't divide is
// not an error either: that part of the model is replicated, and a note says so.
type family struct {
	sources []Source
	config  checkpoint.Config
	tp      int64
	index   map[string]int   // source name to position
	experts map[string][]int // "….experts" to the numbers of its experts, sorted
	used    []bool           // sources that a parameter has taken
	alias   map[string]string
	notes   []string
	noted   map[string]bool // kinds of notes made
}

// newFamily indexes the sources once: rules look up siblings by name, and a large model has tens of thousands.
func newFamily(sources []Source, config checkpoint.Config, tp int64) *family {
	f := &family{
		sources: sources, config: config, tp: tp, index: map[string]int{}, experts: map[string][]int{},
		used: make([]bool, len(sources)), alias: map[string]string{}, noted: map[string]bool{},
	}
	for i, s := range sources {
		f.index[s.Name] = i
		module, _ := splitLast(s.Name)
		path, _ := splitLast(module)
		if stack, number, ok := expertOf(path); ok {
			f.experts[stack] = append(f.experts[stack], number)
		}
	}
	for stack, numbers := range f.experts {
		slices.Sort(numbers)
		f.experts[stack] = slices.Compact(numbers)
	}
	return f
}

// params are all parameters, in the order of their first sources.
func (f *family) params() []param {
	var all []param
	for i := range f.sources {
		if f.used[i] {
			continue
		}
		p, ok := f.rule(i)
		if !ok {
			p = f.whole(i)
		}
		for _, piece := range p.pieces { // a fused parameter is made at the first of its sources
			f.used[piece.source] = true
		}
		if len(p.pieces) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// whole copies a source as it is.
func (f *family) whole(i int) param {
	return param{name: f.sources[i].Name, pieces: []piece{{i, -1, 1}}}
}

// rule finds what a source becomes part of; false for an unknown name.
func (f *family) rule(i int) (param, bool) {
	path, leaf := splitLast(f.sources[i].Name)
	path, module := splitLast(path)
	if leaf != "weight" && leaf != "bias" {
		return param{}, false
	}
	if stack, _, ok := expertOf(path); ok {
		return f.expertStack(stack, module, leaf)
	}
	switch module {
	case "q_proj", "k_proj", "v_proj":
		return f.qkv(path, leaf)
	case "o_proj":
		return f.output(path, leaf)
	case "gate_proj", "up_proj":
		return f.gateUp(path, leaf)
	case "down_proj":
		return f.down(path, leaf)
	case "gate":
		return f.router(path, leaf)
	case "embed_tokens", "lm_head":
		return f.vocabulary(i)
	}
	return param{}, false
}

// qkv fuses the three projections: the rank's query heads, then its key heads, then its value heads.
func (f *family) qkv(path, leaf string) (param, bool) {
	set, ok := f.attention(path, leaf)
	if !ok {
		return param{}, false
	}
	queries, keys := f.headParts()
	return param{name: path + ".qkv_proj." + leaf, pieces: []piece{{set[0], 0, queries}, {set[1], 0, keys}, {set[2], 0, keys}}}, true
}

// attention finds query, key and value projections whose rows are the heads that config.json has.
func (f *family) attention(path, leaf string) ([]int, bool) {
	set, ok := f.set(path, leaf, "q_proj", "k_proj", "v_proj")
	if !ok {
		return nil, false
	}
	q, kv := f.config.Heads*f.config.HeadDim, f.config.KVHeads*f.config.HeadDim
	if q == 0 || f.rows(set[0]) != q || f.rows(set[1]) != kv || f.rows(set[2]) != kv || !f.sameColumns(set) {
		f.note("heads", "attention projections whose shapes don't match config.json's heads are replicated unfused, for instance %s", path)
		return nil, false
	}
	return set, true
}

// headParts is in how many parts query and key/value heads are cut: 1 when they can't be.
func (f *family) headParts() (queries, keys int64) {
	heads, kv := f.config.Heads, f.config.KVHeads
	if heads%f.tp == 0 && kv > 0 && (kv%f.tp == 0 || f.tp%kv == 0) {
		return f.tp, min(f.tp, kv)
	}
	f.note("divide", "attention is replicated: %d query heads and %d key/value heads can't be split between %d ranks", heads, kv, f.tp)
	return 1, 1
}

// output cuts o_proj's columns like the heads that they multiply.
func (f *family) output(path, leaf string) (param, bool) {
	if _, ok := f.attention(path, "weight"); !ok || leaf != "weight" {
		return param{}, false
	}
	i := f.index[path+".o_proj.weight"]
	if shape := f.sources[i].Shape; len(shape) != 2 || shape[1] != f.config.Heads*f.config.HeadDim {
		return param{}, false
	}
	parts, _ := f.headParts()
	return param{name: path + ".o_proj.weight", pieces: []piece{{i, 1, parts}}}, true
}

// gateUp fuses the two projections: the rank's rows of gate, then those of up.
func (f *family) gateUp(path, leaf string) (param, bool) {
	set, ok := f.set(path, leaf, "gate_proj", "up_proj")
	if !ok || f.rows(set[0]) != f.rows(set[1]) || !f.sameColumns(set) {
		return param{}, false
	}
	parts := f.widthParts("an mlp", f.rows(set[0]))
	return param{name: path + ".gate_up_proj." + leaf, pieces: []piece{{set[0], 0, parts}, {set[1], 0, parts}}}, true
}

// down cuts columns like the rows of gate and up that they multiply.
func (f *family) down(path, leaf string) (param, bool) {
	set, ok := f.set(path, "weight", "gate_proj", "up_proj")
	if !ok || leaf != "weight" {
		return param{}, false
	}
	i, width := f.index[path+".down_proj.weight"], f.rows(set[0])
	if shape := f.sources[i].Shape; len(shape) != 2 || shape[1] != width {
		return param{}, false
	}
	return param{name: path + ".down_proj.weight", pieces: []piece{{i, 1, f.widthParts("an mlp", width)}}}, true
}

// widthParts is in how many parts an intermediate dimension is cut: 1 when it can't be.
func (f *family) widthParts(what string, width int64) int64 {
	if width%f.tp == 0 {
		return f.tp
	}
	f.note(fmt.Sprint(what, width), "%s of width %d is replicated: it can't be split between %d ranks", what, width, f.tp)
	return 1
}

// router keeps the router's dtype, or the one that the engine computes it in.
func (f *family) router(path, leaf string) (param, bool) {
	if len(f.experts[path+".experts"]) == 0 {
		return param{}, false
	}
	i := f.index[path+".gate."+leaf]
	p := f.whole(i)
	// Only a cast that keeps every value: a router that is narrower in the engine than in the trainer loses tokens.
	narrow := f.sources[i].DType == safetensors.BF16 || f.sources[i].DType == safetensors.F16
	if narrow && f.config.RouterDType == "float32" {
		p.dtype = safetensors.F32
	}
	if f.config.ModelType == "qwen3_moe" { // there the expert module holds its router too
		f.alias[path+".experts.gate."+leaf] = p.name
	}
	return p, true
}

// expertNames are the names of gate, up and down, in Qwen's and in Mixtral's spelling.
var expertNames = [][3]string{{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}}

// expertStack stacks all experts of a layer: gate and up rows in w13_weight, down columns in w2_weight.
func (f *family) expertStack(stack, module, leaf string) (param, bool) {
	for _, names := range expertNames {
		which := slices.Index(names[:], module)
		if which < 0 || leaf != "weight" {
			continue
		}
		width, ok := f.sameExperts(stack, names)
		if !ok {
			f.note("experts", "experts that are incomplete or of unequal shapes are replicated unfused, for instance %s", stack)
			return param{}, false
		}
		return f.stackOf(stack, names, which == 2, f.widthParts("an expert", width)), true
	}
	return param{}, false
}

// stackOf lists the pieces of a stack in the order in which they lie: by expert, and gate before up.
func (f *family) stackOf(stack string, names [3]string, down bool, parts int64) param {
	experts := f.experts[stack]
	p := param{name: stack + ".routed_experts.w13_weight", experts: int64(len(experts))}
	if down {
		p.name = stack + ".routed_experts.w2_weight"
	}
	for _, e := range experts {
		path := stack + "." + strconv.Itoa(e) + "."
		if down {
			p.pieces = append(p.pieces, piece{f.index[path+names[2]+".weight"], 1, parts})
			continue
		}
		p.pieces = append(p.pieces, piece{f.index[path+names[0]+".weight"], 0, parts}, piece{f.index[path+names[1]+".weight"], 0, parts})
	}
	return p
}

// sameExperts says whether experts 0…E-1 all have gate, up and down of one width, dtype and hidden size.
func (f *family) sameExperts(stack string, names [3]string) (width int64, ok bool) {
	var first *Source
	for number, e := range f.experts[stack] {
		path := stack + "." + strconv.Itoa(e)
		set, complete := f.set(path, "weight", names[:]...)
		if !complete || number != e || len(f.sources[set[0]].Shape) != 2 {
			return 0, false
		}
		gate, up, down := &f.sources[set[0]], &f.sources[set[1]], &f.sources[set[2]]
		if first == nil {
			first = gate
		}
		if !slices.Equal(gate.Shape, first.Shape) || !slices.Equal(up.Shape, first.Shape) || gate.DType != first.DType ||
			!slices.Equal(down.Shape, []int64{first.Shape[1], first.Shape[0]}) {
			return 0, false
		}
	}
	if first == nil {
		return 0, false
	}
	return first.Shape[0], true
}

// Where causal models keep the embedding and the head.
const (
	embeddingName = "model.embed_tokens.weight"
	headName      = "lm_head.weight"
)

// vocabulary pads the rows to a multiple of 64 and of the ranks. A tied head is no parameter but another name of the embedding.
func (f *family) vocabulary(i int) (param, bool) {
	s := &f.sources[i]
	if len(s.Shape) != 2 {
		return param{}, false
	}
	if prefix, ok := strings.CutSuffix(s.Name, embeddingName); ok && f.config.Tied {
		f.alias[prefix+headName] = s.Name
	}
	if prefix, ok := strings.CutSuffix(s.Name, headName); ok && f.config.Tied {
		if _, ok := f.index[prefix+embeddingName]; ok {
			f.note("tied", "%s is not read: config.json ties it to the embedding", s.Name)
			return param{}, true
		}
	}
	step := int64(vocabularyPad)
	for step%f.tp != 0 {
		step += vocabularyPad
	}
	return param{name: s.Name, pieces: []piece{{i, 0, f.tp}}, padded: (s.Shape[0] + step - 1) / step * step}, true
}

// set finds the named modules' sources under a path; all must be there, of one dtype and rank.
func (f *family) set(path, leaf string, modules ...string) ([]int, bool) {
	set := make([]int, len(modules))
	for n, module := range modules {
		i, ok := f.index[path+"."+module+"."+leaf]
		if !ok || len(f.sources[i].Shape) == 0 {
			return nil, false
		}
		set[n] = i
		if a, b := &f.sources[set[0]], &f.sources[i]; a.DType != b.DType || len(a.Shape) != len(b.Shape) {
			return nil, false
		}
	}
	return set, true
}

// sameColumns says whether sources agree in all dimensions but the first.
func (f *family) sameColumns(set []int) bool {
	for _, i := range set {
		if !slices.Equal(f.sources[i].Shape[1:], f.sources[set[0]].Shape[1:]) {
			return false
		}
	}
	return true
}

// rows is the first dimension: weights are stored [out, in].
func (f *family) rows(source int) int64 { return f.sources[source].Shape[0] }

// expertOf splits "….experts.7" into the stack and the number.
func expertOf(path string) (stack string, number int, ok bool) {
	stack, last := splitLast(path)
	number, err := strconv.Atoi(last)
	return stack, number, err == nil && number >= 0 && strings.HasSuffix(stack, ".experts")
}

// note keeps the first sentence of a kind.
func (f *family) note(kind, format string, args ...any) {
	if !f.noted[kind] {
		f.noted[kind] = true
		f.notes = append(f.notes, fmt.Sprintf(format, args...))
	}
}

// splitLast cuts a dotted name before its last component.
func splitLast(name string) (path, last string) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name
	}
	return name[:i], name[i+1:]
}
