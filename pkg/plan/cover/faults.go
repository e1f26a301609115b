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

// Faults spells the regions of one space out, run by run, and names up to limit ranges that are not
// written exactly once. holes says whether ranges that nothing writes count. ok is false when there are
// too many runs to look at.
func Faults(space int, s Space, got Regions, holes bool, limit int) (faults []Fault, ok bool) {
	runs, ok := spell(s, got)
	if !ok {
		return nil, false
	}
	slices.SortFunc(runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(a.hi, b.hi), cmp.Compare(a.id, b.id))
	})
	f := finder{space: space, limit: limit}
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
	if n := s.Hi - s.Lo; end < n && holes {
		f.note(end, n, 0)
	}
	return f.faults, true
}

type run struct {
	lo, hi int64
	id     int
}

func spell(s Space, got Regions) (runs []run, ok bool) {
	ok = true
	got(func(id int, r *Region) bool {
		if r.Off < s.Lo || r.Off >= s.Hi {
			return true
		}
		r.settle()
		var at [MaxDims]int64
		off := r.Off - s.Lo
		for {
			if len(runs) == maxRuns {
				ok = false
				return false
			}
			runs = append(runs, run{off, off + r.Run, id})
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
				return true
			}
		}
	})
	return runs, ok
}

type finder struct {
	space, limit int
	faults       []Fault
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
