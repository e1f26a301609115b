package shardlayout

import "strings"

// rowCut and columnCut are modules whose weights tensor parallelism cuts by output rows (dimension 0, the
// column-parallel linears of Megatron) and by input columns (dimension 1, the row-parallel ones). Weights
// are stored [out, in]. w1, w3 and w2 are Mixtral's names of gate, up and down.
var (
	rowCut = map[string]bool{
		"q_proj": true, "k_proj": true, "v_proj": true, "gate_proj": true, "up_proj": true,
		"w1": true, "w3": true, "embed_tokens": true, "lm_head": true,
	}
	columnCut = map[string]bool{"o_proj": true, "down_proj": true, "w2": true}
)

// tensorParallelDim is the dimension that tensor parallelism cuts, -1 for replicated sources: norms, routers,
// biases that are added after the reduction, and whatever has another name.
func tensorParallelDim(source Source) int {
	path, leaf := splitLast(source.Name)
	_, module := splitLast(path)
	switch {
	case leaf != "weight" && leaf != "bias":
		return -1
	case rowCut[module] && len(source.Shape) >= 1:
		return 0
	case columnCut[module] && len(source.Shape) >= 2:
		return 1
	}
	return -1
}

// CutsColumns says whether tensor parallelism cuts a source by its last dimension, so that each reader takes a slice of
// every row.
func CutsColumns(name string, shape []int64) bool {
	return len(shape) >= 2 && tensorParallelDim(Source{Name: name, Shape: shape}) == len(shape)-1
}

// CutsRows says whether tensor parallelism cuts a source by its first dimension and no other, so that each reader takes
// whole rows.
func CutsRows(name string, shape []int64) bool {
	return len(shape) >= 2 && tensorParallelDim(Source{Name: name, Shape: shape}) == 0
}

// splitLast cuts a dotted name before its last component.
func splitLast(name string) (path, leaf string) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name
	}
	return name[:i], name[i+1:]
}
