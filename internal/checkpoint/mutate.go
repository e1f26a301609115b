package checkpoint

import (
	"encoding/binary"
	"fmt"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// Mutate turns checkpoint values into those of a version, or back: it is its own inverse, so a holder of
// version v gets to w by Mutate(v) and Mutate(w). dst holds consecutive elements of the tensor called name, the first
// of which has the row-major index first. Version 0 is the checkpoint itself. What is finite stays
// finite, a bool a bool. The result depends on value, name, index, seed and version only, not on how the tensor is cut.
//
// It flips mantissa bits (low bits of integers) by a hash of the index. The whole tensor is seen
// as words of eight bytes with one hash each, so that the inner loop handles eight bytes at a time; elements never straddle words.
func Mutate(dst []byte, dtype safetensors.DType, name string, first int64, seed, version uint64) {
	size := dtype.Size()
	if size == 0 || int64(len(dst))%size != 0 {
		panic(fmt.Sprintf("checkpoint: mutate %d bytes as %s, which is no whole number of elements", len(dst), dtype))
	}
	if version == 0 || len(dst) == 0 {
		return
	}
	f := flips[dtype]
	key := streamKey(name, seed, version)
	pos := uint64(first * size) // byte in the tensor
	if in := pos % 8; in != 0 { // the word that dst begins inside of
		n := min(uint64(len(dst)), 8-in)
		f.partial(dst[:n], in, key+pos/8)
		dst, pos = dst[n:], pos+n
	}
	whole := len(dst) &^ 7
	f.words(dst[:whole], key+pos/8)
	if whole < len(dst) {
		f.partial(dst[whole:], 0, key+(pos+uint64(whole))/8)
	}
}

// MutateBox is Mutate for the box [lo, hi) of a tensor of that shape; dst holds the box row-major and packed.
func MutateBox(dst []byte, dtype safetensors.DType, name string, shape, lo, hi []int64, seed, version uint64) {
	if len(dst) == 0 || version == 0 {
		return
	}
	// The dimensions after split are whole, so a run covers them and the box's part of split.
	split := len(shape)
	run := int64(1)
	for split > 0 {
		split--
		run *= hi[split] - lo[split]
		if hi[split]-lo[split] != shape[split] {
			break
		}
	}
	nbytes := run * dtype.Size()
	for at := int64(0); at < int64(len(dst)); at += nbytes {
		row := at / nbytes // number of the run, counted over the box's outer dimensions
		Mutate(dst[at:at+nbytes], dtype, name, runStart(shape, lo, hi, split, row), seed, version)
	}
}

// runStart is the tensor's row-major index of the first element of the box's run number row, when a run begins at dimension split.
func runStart(shape, lo, hi []int64, split int, row int64) int64 {
	index, stride := int64(0), int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		coordinate := lo[d]
		if d < split {
			coordinate += row % (hi[d] - lo[d])
			row /= hi[d] - lo[d]
		}
		index += coordinate * stride
		stride *= shape[d]
	}
	return index
}

// flip says which bits of eight bytes may change. Bytes b with b&sel == val keep their bits, because a flip could make a NaN of them.
type flip struct {
	lanes    uint64 // changeable bits of one word
	sel, val uint64 // per byte; sel 0: no exception
}

const (
	everyByte = 0x0101010101010101
	low7      = 0x7f * everyByte
	high1     = 0x80 * everyByte
)

// flips has the mantissa of floats and low bits of integers. float8_e4m3fn's NaN has all exponent and
// mantissa bits set; the FNUZ types' NaN is negative zero, one flip away from small negative numbers; E8M0's is 255.
var flips = map[safetensors.DType]flip{
	safetensors.Bool: {lanes: 0x01 * everyByte},
	safetensors.U8:   {lanes: 0xff * everyByte},
	safetensors.I8:   {lanes: 0x7f * everyByte},
	safetensors.I16:  {lanes: 0x00ff_00ff_00ff_00ff},
	safetensors.U16:  {lanes: 0x00ff_00ff_00ff_00ff},
	safetensors.I32:  {lanes: 0x0000_00ff_0000_00ff},
	safetensors.U32:  {lanes: 0x0000_00ff_0000_00ff},
	safetensors.I64:  {lanes: 0xff},
	safetensors.U64:  {lanes: 0xff},
	safetensors.F16:  {lanes: 0x03ff_03ff_03ff_03ff},
	safetensors.BF16: {lanes: 0x007f_007f_007f_007f},
	safetensors.F32:  {lanes: 0x007f_ffff_007f_ffff},
	safetensors.C64:  {lanes: 0x007f_ffff_007f_ffff},
	safetensors.F64:  {lanes: 0x000f_ffff_ffff_ffff},

	safetensors.F8E5M2:     {lanes: 0x03 * everyByte},
	safetensors.F8E4M3:     {lanes: 0x07 * everyByte, sel: 0x78 * everyByte, val: 0x78 * everyByte},
	safetensors.F8E4M3FNUZ: {lanes: 0x07 * everyByte, sel: 0xf8 * everyByte, val: 0x80 * everyByte},
	safetensors.F8E5M2FNUZ: {lanes: 0x03 * everyByte, sel: 0xfc * everyByte, val: 0x80 * everyByte},
	safetensors.F8E8M0:     {lanes: 0x07 * everyByte, sel: 0xf8 * everyByte, val: 0xf8 * everyByte},
}

// words flips whole words; counter is the key plus the number of the first one.
func (f flip) words(dst []byte, counter uint64) {
	if f.sel != 0 {
		for ; len(dst) >= 8; dst = dst[8:] {
			x := binary.LittleEndian.Uint64(dst)
			binary.LittleEndian.PutUint64(dst, x^f.bits(x, counter))
			counter++
		}
		return
	}
	for ; len(dst) >= 8; dst = dst[8:] {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(dst)^mix(counter)&f.lanes)
		counter++
	}
}

// partial flips the bytes of one word that dst has, from byte in of the word.
func (f flip) partial(dst []byte, in, counter uint64) {
	var word [8]byte
	copy(word[in:], dst)
	x := binary.LittleEndian.Uint64(word[:])
	binary.LittleEndian.PutUint64(word[:], x^f.bits(x, counter))
	copy(dst, word[in:])
}

// bits to flip in x, with the exceptions of eight-bit types applied to all bytes at once.
func (f flip) bits(x, counter uint64) uint64 {
	change := mix(counter) & f.lanes
	if f.sel == 0 {
		return change
	}
	other := x&f.sel ^ f.val                       // zero bytes are exceptions
	kept := ^((other&low7 + low7) | other) & high1 // their high bits
	return change &^ (kept >> 7 * 0xff)
}

// streamKey begins the sequence of hashes for a tensor in a version (FNV-1a of the name, then mixed).
func streamKey(name string, seed, version uint64) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return mix(h^mix(seed)) ^ mix(version^0x6472_7964_6f63_6b00)
}

// mix is the splitmix64 finaliser over a counter.
func mix(counter uint64) uint64 {
	z := counter*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
