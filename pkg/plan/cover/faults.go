package cover

import (
	"cmp"
	"slices"
)

// Fault is a range of bytes that is not written exactly once.
type Fault struct {
	Space  int   // index
	Lo, Hi int64 // bytes, from the space's start
	Times  int   // how often it is written: 0, or more than once
	IDs    []int // regions that write it, at most four
}

// maxRuns bounds how many runs Faults spells out before it gives up on naming.
const maxRuns = 1 << 24

// Faults spells the regions of some spaces (by index, ascending) out, run by run, and names up to limit
// ranges of each that are not written exactly once. holes says whether ranges that nothing writes count.
// ok is false when there are too many runs to look at.
func Faults(spaces []Space, which []int, got Regions, holes bool, limit int) (faults []Fault, ok bool) {
	runs, ok := spell(spaces, which, got)
	if !ok {
		return nil, false
	}
	slices.SortFunc(runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(a.space, b.space), cmp.Compare(a.lo, b.lo), cmp.Compare(a.hi, b.hi), cmp.Compare(a.id, b.id))
	})
	for _, i := range which {
		n := 0
		for n < len(runs) && runs[n].space == i {
			n++
		}
		f := finder{space: i, limit: limit}
		f.sweep(runs[:n], spaces[i].Hi-spaces[i].Lo, holes)
		faults = append(faults, f.faults...)
		runs = runs[n:]
	}
	return faults, true
}

// finder gathers the faults of one space.
type finder struct {
	space, limit int
	faults       []Fault
}

// sweep goes over the sorted runs of a space of the given size.
func (f *finder) sweep(runs []run, nbytes int64, holes bool) {
	end, endID := int64(0), -1
	for _, r := range runs {
		if r.lo > end && holes {
			f.note(end, r.lo, 0)
		}
		if r.lo < end {
			f.note(r.lo, min(r.hi, end), 2, endID, r.id)
		}
		if r.hi > end {
			end, endID = r.hi, r.id
		}
	}
	if end < nbytes && holes {
		f.note(end, nbytes, 0)
	}
}

type run struct {
	space  int
	lo, hi int64
	id     int
}

// spell lists the runs of all regions that begin in one of the wanted spaces.
func spell(spaces []Space, which []int, got Regions) (runs []run, ok bool) {
	c := newChecker(spaces)
	wanted := make([]bool, len(spaces))
	for _, i := range which {
		wanted[i] = true
	}
	ok = true
	got(func(id int, r *Region) bool {
		i := c.space(r.Off)
		if i < 0 || !wanted[i] {
			return true
		}
		r.settle()
		runs, ok = r.spell(i, id, r.Off-spaces[i].Lo, runs)
		return ok
	})
	return runs, ok
}

// spell lists the region's runs, the last dimension fastest.
func (r *Region) spell(space, id int, off int64, runs []run) ([]run, bool) {
	from, ok := r.Off, true
	r.each(func(at int64) bool {
		if ok = len(runs) < maxRuns; ok {
			runs = append(runs, run{space, off + at - from, off + at - from + r.Run, id})
		}
		return ok
	})
	return runs, ok
}

// each yields where the region's runs begin, the last dimension fastest.
func (r *Region) each(yield func(off int64) bool) {
	var at [MaxDims]int64
	off := r.Off
	for {
		if !yield(off) {
			return
		}
		k := r.NDim - 1
		for ; k >= 0; k-- {
			off += r.Stride[k]
			if at[k]++; at[k] < r.N[k] {
				break
			}
			off -= at[k] * r.Stride[k]
			at[k] = 0
		}
		if k < 0 {
			return
		}
	}
}

// note adds a fault, or grows the one before when it goes on where that ended.
func (f *finder) note(lo, hi int64, times int, ids ...int) {
	if n := len(f.faults) - 1; n >= 0 && f.faults[n].Times == times && f.faults[n].Hi >= lo {
		last := &f.faults[n]
		last.Hi = max(last.Hi, hi)
		for _, id := range ids {
			if len(last.IDs) < 4 && !slices.Contains(last.IDs, id) {
				last.IDs = append(last.IDs, id)
			}
		}
		return
	}
	if len(f.faults) < f.limit {
		f.faults = append(f.faults, Fault{Space: f.space, Lo: lo, Hi: hi, Times: times, IDs: slices.Compact(ids)})
	}
}
