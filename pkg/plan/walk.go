package plan

import (
	"sort"

	"github.com/drydock-rl/drydock/pkg/plan/view"
)

// maxWalk is the largest number of dimensions of a walk. Views have fewer; cutting may add some.
const maxWalk = 16

// walk is a set of elements: an index space, and where each index lies in the source and in a destination.
// The order of its dimensions means nothing.
type walk struct {
	n         int
	src       int64          // element of the row-major source at index 0
	dst       int64          // bytes from the copy's first element at index 0
	size      [maxWalk]int64 // indices per dimension, > 1 unless in the middle of a cut
	srcStride [maxWalk]int64 // elements of the row-major source
	dstStride [maxWalk]int64 // bytes
}

// walkOf pairs a view with the region of a copy of the same sizes. Dimensions of size 1 are dropped,
// and neighbours that lie without a gap on both sides are joined.
func walkOf(v *view.View, stride []int64, elsize int64) walk {
	w := walk{src: v.Offset}
	for d := range v.NDim {
		if v.Shape[d] == 1 {
			continue
		}
		w.push(v.Shape[d], v.Stride[d], stride[d]*elsize)
	}
	return w
}

// push adds a dimension inside the last one, joining them where one stride says both.
func (w *walk) push(size, src, dst int64) {
	if k := w.n - 1; k >= 0 && w.srcStride[k] == size*src && w.dstStride[k] == size*dst {
		w.size[k] *= size
		w.srcStride[k], w.dstStride[k] = src, dst
		return
	}
	w.size[w.n], w.srcStride[w.n], w.dstStride[w.n] = size, src, dst
	w.n++
}

// through follows a walk over a stage back to the tensor that the stage was made of. Inside one part of the stage
// the place before is a linear function of the coordinates, so a lattice of coordinates becomes one walk; a lattice
// that goes over several parts is cut at their borders, which follow each other along one dimension.
func (w *walk) through(st *view.Stage, out []walk) ([]walk, bool) {
	if len(st.Shape) == 0 {
		c := *w
		c.src = st.Parts[0].Offset
		return append(out, c), true
	}
	lats, ok := newResolver(st.Shape).resolve(w)
	if !ok {
		return nil, false
	}
	for i := range lats {
		lo, last := lats[i].bounds(st.Dim)
		first := sort.Search(len(st.Parts), func(k int) bool { return st.Parts[k].Hi[st.Dim] > lo })
		for k := first; k < len(st.Parts) && st.Parts[k].Lo[st.Dim] <= last; k++ {
			p := &st.Parts[k]
			b := box{n: len(st.Shape)}
			copy(b.lo[:], p.Lo)
			copy(b.hi[:], p.Hi)
			for _, l := range lats[i].cut(&b, nil) {
				out = append(out, l.via(p))
			}
			if len(out) > maxParts {
				return nil, false
			}
		}
	}
	return out, true
}

// via maps a lattice of a stage's coordinates to the tensor before.
func (l *lattice) via(p *view.Part) walk {
	c := walk{src: p.Offset, dst: l.dst}
	for d, s := range p.Stride {
		c.src += l.at[d] * s
	}
	for j := range l.n {
		stride := int64(0)
		for d, s := range p.Stride {
			stride += l.step[j][d] * s
		}
		if l.size[j] > 1 {
			c.push(l.size[j], stride, l.dstStride[j])
		}
	}
	return c
}

// nelems counts the indices.
func (w *walk) nelems() int64 { return nelems(w.size[:w.n]) }

// walkFrom reads what row wrote, and returns how many integers that was.
func walkFrom(row []int64) (w walk, read int) {
	n := int(row[0])
	w.n, w.src, w.dst = n, row[1], row[2]
	copy(w.size[:], row[3:3+n])
	copy(w.srcStride[:], row[3+n:3+2*n])
	copy(w.dstStride[:], row[3+2*n:3+3*n])
	return w, 3 + 3*n
}

// row writes the walk as integers, to give equal ones the same number.
func (w *walk) row(out []int64) []int64 {
	out = append(out, int64(w.n), w.src, w.dst)
	out = append(out, w.size[:w.n]...)
	out = append(out, w.srcStride[:w.n]...)
	return append(out, w.dstStride[:w.n]...)
}
