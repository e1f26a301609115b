package cover

import (
	"cmp"
	"slices"
)

// run is a range of bytes that one region writes.
type run struct {
	lo, hi int64 // bytes of the arena
	id     int
}

// runMerger gives the runs of many regions in ascending order, without listing them: it holds the next run of
// each region in a heap.
type runMerger struct {
	heap   []walker
	spaces []Space
}

// walker goes over the runs of a region whose dimensions nest, so that they come in ascending order.
type walker struct {
	run
	space int
	dims  []dim   // outermost first
	at    []int64 // index in each
}

// maxWalkers bounds how many parts regions are cut into whose dimensions don't nest.
const maxWalkers = 1 << 20

// merge prepares for the regions that begin in one of the wanted spaces. False means that they would have to be
// cut into too many parts.
func merge(spaces []Space, which []int, got Regions) (*runMerger, bool) {
	c := newChecker(spaces)
	wanted := make([]bool, len(spaces))
	for _, i := range which {
		wanted[i] = true
	}
	m, ok := &runMerger{spaces: spaces}, true
	got(func(id int, r *Region) bool {
		i := c.space(r.Off)
		if i < 0 || !wanted[i] {
			return true
		}
		r.settle()
		dims := r.dims(nil)
		if r.Run > 1 {
			dims = dims[:len(dims)-1] // the run itself
		}
		slices.SortFunc(dims, func(a, b dim) int { return cmp.Compare(b.stride, a.stride) })
		ok = m.add(walker{run: run{r.Off, r.Off + r.Run, id}, space: i, dims: dims})
		return ok
	})
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return m, ok
}

// add takes a walker in; one whose runs would not come in order is cut along the dimension at fault.
func (m *runMerger) add(w walker) bool {
	if len(m.heap) == maxWalkers {
		return false
	}
	reach := w.hi - w.lo
	for k := len(w.dims) - 1; k >= 0; k-- {
		d := w.dims[k]
		if d.stride < reach { // the next index begins before this one ends
			w.dims = slices.Delete(slices.Clone(w.dims), k, k+1)
			for range d.n {
				if !m.add(w) {
					return false
				}
				w.lo, w.hi = w.lo+d.stride, w.hi+d.stride
			}
			return true
		}
		reach += (d.n - 1) * d.stride
	}
	w.at = make([]int64, len(w.dims))
	m.heap = append(m.heap, w)
	return true
}

// next returns the next run of a space, and drops what is left of those before it.
func (m *runMerger) next(space int) (run, bool) {
	for len(m.heap) > 0 && m.heap[0].space < space {
		m.drop()
	}
	if len(m.heap) == 0 || m.heap[0].space > space {
		return run{}, false
	}
	out := m.heap[0].run
	if m.heap[0].advance() {
		m.sink(0)
	} else {
		m.drop()
	}
	return out, true
}

// drop takes the first walker out.
func (m *runMerger) drop() {
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	if last > 0 {
		m.sink(0)
	}
}

// sink puts walker i in its place below those that come earlier.
func (m *runMerger) sink(i int) {
	for {
		first := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(m.heap); k++ {
			if m.heap[k].before(&m.heap[first]) {
				first = k
			}
		}
		if first == i {
			return
		}
		m.heap[i], m.heap[first] = m.heap[first], m.heap[i]
		i = first
	}
}

// before orders runs by space, place and region, so that equal inputs name equal faults.
func (w *walker) before(o *walker) bool {
	return cmp.Or(cmp.Compare(w.space, o.space), cmp.Compare(w.lo, o.lo), cmp.Compare(w.hi, o.hi), cmp.Compare(w.id, o.id)) < 0
}

// advance moves on to the region's next run; false after the last.
func (w *walker) advance() bool {
	for k := len(w.dims) - 1; k >= 0; k-- {
		d := w.dims[k]
		w.lo, w.hi = w.lo+d.stride, w.hi+d.stride
		if w.at[k]++; w.at[k] < d.n {
			return true
		}
		back := w.at[k] * d.stride
		w.lo, w.hi, w.at[k] = w.lo-back, w.hi-back, 0
	}
	return false
}
