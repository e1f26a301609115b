package cover

import "slices"

// Fault is a range of bytes that is not written exactly once.
type Fault struct {
	Space  int   // index
	Lo, Hi int64 // bytes, from the space's start
	Times  int   // how often it is written: 0, or more than once
	IDs    []int // regions that write it, at most four
}

// maxRuns bounds how many runs Faults looks at before it gives up on naming: a second or two.
const maxRuns = 1 << 24

// Faults goes over the runs of some spaces (by index, ascending), and names up to limit ranges of each that
// are not written exactly once. holes says whether ranges that nothing writes count. It holds a few words for
// each region, however many runs that has. ok is false when there were too many runs to look at all.
func Faults(spaces []Space, which []int, got Regions, holes bool, limit int) (faults []Fault, ok bool) {
	m, ok := merge(spaces, which, got)
	if !ok {
		return nil, false
	}
	seen := 0
	for _, i := range which {
		f := finder{space: i, limit: limit}
		for len(f.faults) < limit {
			r, more := m.next(i)
			if !more {
				f.end(spaces[i].Hi-spaces[i].Lo, holes)
				break
			}
			if seen++; seen > maxRuns {
				return append(faults, f.faults...), false
			}
			f.run(r, spaces[i].Lo, holes)
		}
		faults = append(faults, f.faults...)
	}
	return faults, true
}

// finder gathers the faults of one space, whose runs it is told in ascending order.
type finder struct {
	space, limit int
	faults       []Fault
	done         int64 // bytes from the space's start that were judged
	doneBy       int   // the region that wrote the last of them
}

// run judges what lies between the runs before and the end of this one.
func (f *finder) run(r run, start int64, holes bool) {
	lo, hi := r.lo-start, r.hi-start
	if lo > f.done && holes {
		f.note(f.done, lo, 0)
	}
	if lo < f.done {
		f.note(lo, min(hi, f.done), 2, f.doneBy, r.id)
	}
	if hi > f.done {
		f.done, f.doneBy = hi, r.id
	}
}

// end judges what lies behind the last run.
func (f *finder) end(nbytes int64, holes bool) {
	if f.done < nbytes && holes {
		f.note(f.done, nbytes, 0)
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
