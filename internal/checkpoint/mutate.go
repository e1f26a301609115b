package checkpoint

import "github.com/drydock-rl/drydock/internal/safetensors"

// Mutate turns checkpoint values into those of a version, or back: it is its own inverse, so a holder of
// version v gets to w by Mutate(v) and Mutate(w). dst holds consecutive elements of the tensor called name, the first
// of which has the row-major index first. Version 0 is the checkpoint itself. What is finite stays
// finite, a bool a bool. The result depends on value, name, index, seed and version only, not on how the tensor is cut.
func Mutate(dst []byte, dtype safetensors.DType, name string, first int64, seed, version uint64) {
	panic("not yet")
}

// MutateBox is Mutate for the box [lo, hi) of a tensor of that shape; dst holds the box row-major and packed.
func MutateBox(dst []byte, dtype safetensors.DType, name string, shape, lo, hi []int64, seed, version uint64) {
	panic("not yet")
}
