package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/plan/plantest"
)

// sourceBytes makes source t of a capture's checkpoint by the formula of the format.
func sourceBytes(t int, dt plan.DType, shape []int64) []byte {
	size := int(dt.Size())
	n := int(plantest.Nelems(shape))
	out := make([]byte, n*size)
	for i := range n {
		z := (uint64(t)<<40 | uint64(i)) + 0x9E3779B97F4A7C15
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
		z &^= 1 << (8*size - 2)
		for k := range size {
			out[i*size+k] = byte(z >> (8 * k))
		}
	}
	return out
}

// cutting is a way in which trainer ranks hold a checkpoint. It returns the boxes of a tensor by rank.
type cutting struct {
	name string
	cut  func(shape []int64) map[int][]int64
}

// cuttings are what captures say nothing about: how the trainers hold the checkpoint. The digests must come out
// the same however that is. Cases take turns, so that each file is judged under every one of them.
var cuttings = []cutting{
	{"whole", func(shape []int64) map[int][]int64 { return map[int][]int64{0: fullBox(shape)} }},
	{"rows over 3", func(shape []int64) map[int][]int64 { return chunks(shape, 0, 3, 0) }},
	{"last dimension over 4", func(shape []int64) map[int][]int64 { return chunks(shape, len(shape)-1, 4, 0) }},
	{"rows over 2, twice", func(shape []int64) map[int][]int64 {
		both := chunks(shape, 0, 2, 0)
		for r, b := range chunks(shape, 0, 2, 2) {
			both[r] = b
		}
		return both
	}},
}

// fullBox is the box of a whole tensor, lo0,hi0,lo1,hi1,….
func fullBox(shape []int64) []int64 {
	box := make([]int64, 0, 2*len(shape))
	for _, n := range shape {
		box = append(box, 0, n)
	}
	return box
}

// chunks cuts a dimension in ceil-sized pieces, as FSDP does; later ranks may hold nothing.
func chunks(shape []int64, dim, n, first int) map[int][]int64 {
	out := map[int][]int64{}
	if len(shape) == 0 {
		return map[int][]int64{first: {}}
	}
	each := (shape[dim] + int64(n) - 1) / int64(n)
	for r := range n {
		box := fullBox(shape)
		box[2*dim] = min(int64(r)*each, shape[dim])
		box[2*dim+1] = min(int64(r+1)*each, shape[dim])
		out[first+r] = box
	}
	return out
}

// judgeCapture makes the capture's checkpoint by its formula, and performs every case's plan on it.
func judgeCapture(name string, raw []byte, out io.Writer) (bool, error) {
	c, err := plan.DecodeCapture(raw)
	if err != nil {
		return false, err
	}
	if n := nbytesOf(c); n > maxPerformed {
		return false, fmt.Errorf("a checkpoint and arenas of %d bytes: this program performs at most %d", n, int64(maxPerformed))
	}
	full := make([][]byte, len(c.Sources))
	index := map[string]int{}
	for i := range c.Sources {
		s := &c.Sources[i]
		full[i] = sourceBytes(i, s.DType, s.Shape)
		index[s.Name] = i
	}
	var t tally
	for i, cut := range cuttings {
		w, table, err := cutCheckpoint(c, cut)
		if err != nil {
			return false, err
		}
		w.Load(table, func(s int) []byte { return full[index[table.Name(s)]] })
		for k := range c.Cases {
			if k%len(cuttings) != i && len(c.Cases) >= len(cuttings) {
				continue
			}
			if err := judgeCase(&c.Cases[k], w, table, cut.name, &t); err != nil {
				return false, err
			}
		}
	}
	return t.print(out, name, "parameters"), nil
}

// maxPerformed bounds the memory that a file of a few lines can ask for, in bytes.
const maxPerformed = 4 << 30

// nbytesOf returns the bytes of the checkpoint and of the largest arena; a size that overflows counts as too many.
func nbytesOf(c *plan.Capture) int64 {
	sum, largest := 0.0, 0.0
	for i := range c.Sources {
		sum += size(c.Sources[i].Shape, c.Sources[i].DType)
	}
	for i := range c.Cases {
		n := 0.0
		for k := range c.Cases[i].Params {
			if q := &c.Cases[i].Params[k]; q.Excluded == "" {
				n += size(q.Shape, q.DType)
			}
		}
		largest = max(largest, n)
	}
	return int64(min(sum+largest, 1<<62))
}

// size returns the bytes of a tensor, as a number that never overflows.
func size(shape []int64, dt plan.DType) float64 {
	n := float64(dt.Size())
	for _, s := range shape {
		n *= float64(s)
	}
	return n
}

// cutCheckpoint gives the checkpoint to ranks.
func cutCheckpoint(c *plan.Capture, cut cutting) (*plantest.World, *plan.Table, error) {
	w := &plantest.World{}
	for i := range c.Sources {
		s := &c.Sources[i]
		boxes := cut.cut(s.Shape)
		for r := 0; len(boxes) > 0; r++ {
			if box, ok := boxes[r]; ok {
				w.AddShard(r, s.Name, s.DType, s.Shape, box, nil, plantest.Nelems(plantest.Sizes(box))*s.DType.Size())
				delete(boxes, r)
			}
		}
	}
	t, err := plan.Merge(w.Layouts)
	return w, t, err
}

// judgeCase performs one case and compares its parameters with their digests. The loaders ran under torch 2.13,
// where float8_e4m3fn saturates.
func judgeCase(k *plan.CaptureCase, w *plantest.World, table *plan.Table, cut string, t *tally) error {
	d := k.Dest()
	n := d.LayOut(0)
	p, err := plan.New(table, []plan.Dest{d}, plan.Options{AllowNarrowing: []string{"*"}, Overflow: plan.OverflowSaturates})
	if err != nil {
		t.needless += len(d.Params)
		t.note("tp %d rank %d ep %t, %s: %v", k.TP, k.Rank, k.EP, cut, err)
		return nil
	}
	arena := bytes.Repeat([]byte{0xEE}, int(n))
	if err := w.Perform(p, [][]byte{arena}); err != nil {
		return fmt.Errorf("tp %d rank %d ep %t, %s: %w", k.TP, k.Rank, k.EP, cut, err)
	}
	for i := range k.Params {
		q := &k.Params[i]
		if q.Excluded != "" {
			t.expected++
			continue
		}
		b := arena[d.Params[i].Offset:][:plantest.Nelems(q.Shape)*q.DType.Size()]
		sum := sha256.Sum256(b)
		x, err := strconv.ParseUint(q.XXH3, 16, 64)
		if err != nil || x != xxh3.Hash(b) || hex.EncodeToString(sum[:]) != q.SHA256 {
			t.wrong++
			t.note("tp %d rank %d ep %t, %s: %q has other bytes than after the loader ran", k.TP, k.Rank, k.EP, cut, q.Name)
			continue
		}
		t.right++
	}
	return nil
}
