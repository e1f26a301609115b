package cover

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomRegions makes regions inside the spaces, whose dimensions nest, cross or meet.
func randomRegions(r *rand.Rand, spaces []Space, n int) []Region {
	var out []Region
	for len(out) < n {
		s := spaces[r.IntN(len(spaces))]
		off := s.Lo + r.Int64N(s.Hi-s.Lo)
		room := s.Hi - off
		run := 1 + r.Int64N(min(room, 4))
		room -= run
		var dims []int64
		for range r.IntN(4) {
			stride := 1 + r.Int64N(9)
			k := 1 + r.Int64N(4)
			if reach := (k - 1) * stride; reach <= room {
				dims, room = append(dims, k, stride), room-reach
			}
		}
		out = append(out, region(off, run, dims...))
	}
	return out
}

// TestMergedRunsAgainstListing compares the heap's order with listing and sorting all runs.
func TestMergedRunsAgainstListing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(15, 16))
	spaces := []Space{{0, 40}, {40, 60}, {64, 99}}
	for range 3000 {
		list := randomRegions(r, spaces, r.IntN(8))
		var want []run
		for id := range list {
			list[id].each(func(off int64) bool {
				want = append(want, run{off, off + list[id].Run, id})
				return true
			})
		}
		m, ok := merge(spaces, []int{0, 1, 2}, each(list))
		if !ok {
			t.Fatal("too many walkers")
		}
		var got []run
		for i := range spaces {
			from := len(got)
			for {
				x, more := m.next(i)
				if !more {
					break
				}
				got = append(got, x)
			}
			if !slices.IsSortedFunc(got[from:], func(a, b run) int { return cmp.Compare(a.lo, b.lo) }) {
				t.Fatalf("runs of space %d are not in order: %v of %+v", i, got[from:], list)
			}
		}
		// regions join runs that touch, so the bytes are compared, each as often as it is written
		if a, b := tally(got), tally(want); !slices.Equal(a, b) {
			t.Fatalf("got bytes %v, listed %v of %+v", a, b, list)
		}
	}
}

// tally counts how often each byte lies in a run.
func tally(runs []run) []int {
	out := make([]int, 100)
	for _, r := range runs {
		for i := r.lo; i < r.hi; i++ {
			out[i]++
		}
	}
	return out
}

// TestSkippedSpaces: what is left of a space whose faults are enough does not show up in the next one.
func TestSkippedSpaces(t *testing.T) {
	t.Parallel()
	spaces := []Space{{0, 1000}, {1000, 1010}}
	got := []Region{region(0, 1, 500, 2), region(1000, 4), region(1005, 5)}
	faults, ok := Faults(spaces, []int{0, 1}, each(got), true, 3)
	want := []Fault{{Space: 0, Lo: 1, Hi: 2}, {Space: 0, Lo: 3, Hi: 4}, {Space: 0, Lo: 5, Hi: 6}, {Space: 1, Lo: 4, Hi: 5}}
	if !ok || !slices.EqualFunc(faults, want, func(a, b Fault) bool { return a.Space == b.Space && a.Lo == b.Lo && a.Hi == b.Hi && a.Times == 0 }) {
		t.Errorf("got %+v, %t; expected %+v", faults, ok, want)
	}
}

// TestFaultsOfWhatWasNotAsked: regions of other spaces are no business of the spaces asked for.
func TestFaultsOfWhatWasNotAsked(t *testing.T) {
	t.Parallel()
	spaces := []Space{{0, 10}, {10, 20}, {20, 30}}
	got := []Region{region(0, 10), region(10, 4), region(20, 10), region(25, 2)}
	faults, ok := Faults(spaces, []int{2}, each(got), true, 10)
	if !ok || len(faults) != 1 || faults[0].Space != 2 || faults[0].Lo != 5 || faults[0].Hi != 7 || !slices.Equal(faults[0].IDs, []int{2, 3}) {
		t.Errorf("got %+v", faults)
	}
	if faults, _ := Faults(spaces, []int{1}, each(got), false, 10); len(faults) != 0 {
		t.Errorf("holes were not asked for, got %+v", faults)
	}
}

// TestFewRegionsOfManyRuns: a region of a hundred million runs costs as much as one of ten, unless strides that
// don't divide each other force it to be spelled out: then nothing is judged, and the space is named.
func TestFewRegionsOfManyRuns(t *testing.T) {
	t.Parallel()
	const n = 6e8
	whole := []Space{{0, 10}, {10, 10 + n}}
	judge := func(regions ...Region) Verdict {
		return Equal(whole, Whole(whole), each(append(regions, region(0, 10))), 8)
	}
	odd, even := region(11, 1, n/2, 2), region(10, 1, n/2, 2)
	if v := judge(odd, even); v.Wrong != nil || v.Stray >= 0 || v.Beyond >= 0 {
		t.Errorf("odd and even bytes: %+v", v)
	}
	even.N[0]--
	if v := judge(odd, even); !slices.Equal(v.Wrong, []int{1}) {
		t.Errorf("odd and even bytes but one: %+v", v)
	}
	if faults, ok := Faults(whole, []int{1}, each([]Region{odd}), true, 2); !ok || len(faults) != 2 || faults[1].Lo != 2 {
		t.Errorf("odd bytes: %+v, %t", faults, ok)
	}
	thirds := []Region{region(10, 1, n/6, 3), region(12, 1, n/6, 3), region(11, 1, n/6, 3)}
	halves := []Region{region(11+n/2, 1, n/4, 2), region(10+n/2, 1, n/4, 2)}
	if v := judge(append(thirds, halves...)...); v.Beyond != 1 || v.Wrong != nil {
		t.Errorf("thirds and halves: %+v", v)
	}
	for _, list := range [][]Region{thirds, halves} { // by themselves they are simple
		if v := judge(list...); v.Beyond >= 0 || !slices.Equal(v.Wrong, []int{1}) {
			t.Errorf("%+v: %+v", list, v)
		}
	}
}

// TestSpacesNearTheEnd: corners of spaces that reach as far as an offset can are numbered without overflow.
func TestSpacesNearTheEnd(t *testing.T) {
	t.Parallel()
	const far = 1 << 62
	spaces := []Space{{far - 64, far}, {far, 1<<63 - 1}}
	got := []Region{region(far-64, 1, 32, 2), region(far-63, 1, 32, 2), region(far, far/2), region(far+far/2, far/2-1)}
	if v := Equal(spaces, Whole(spaces), each(got), 4); v.Wrong != nil || v.Stray >= 0 || v.Beyond >= 0 {
		t.Errorf("a cover was not seen: %+v", v)
	}
	got[1].Off--
	if v := Equal(spaces, Whole(spaces), each(got), 4); !slices.Equal(v.Wrong, []int{0}) {
		t.Errorf("even bytes twice: %+v", v)
	}
}

// TestManyDimensions: a region may have as many dimensions as it can say.
func TestManyDimensions(t *testing.T) {
	t.Parallel()
	const n = 18
	spaces := []Space{{0, 3 << n}}
	var got []Region
	for at := range int64(3) { // bit reversal: dimension d moves by 3·2^(n-1-d)
		r := region(at, 1)
		for d := range n {
			r.N[d], r.Stride[d] = 2, 3<<(n-1-d)
		}
		r.NDim = n
		got = append(got, r)
	}
	if v := Equal(spaces, Whole(spaces), each(got), 4); v.Wrong != nil || v.Stray >= 0 || v.Beyond >= 0 {
		t.Errorf("got %+v", v)
	}
	got[1].N[4] = 1
	if v := Equal(spaces, Whole(spaces), each(got), 4); !slices.Equal(v.Wrong, []int{0}) {
		t.Errorf("half of one column is missing: %+v", v)
	}
}

// TestEqualOfRegions wants regions instead of whole spaces, some bytes never and some twice, and compares the
// verdict with counting.
func TestEqualOfRegions(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 18))
	spaces := []Space{{0, 40}, {40, 60}, {64, 99}}
	equal := 0
	for i := range 5000 {
		want := randomRegions(r, spaces, 1+r.IntN(5))
		got := slices.Clone(want)
		r.Shuffle(len(got), func(i, k int) { got[i], got[k] = got[k], got[i] })
		if k := r.IntN(len(got)); got[k].NDim > 0 { // one of them index by index
			d := got[k].NDim - 1
			rest := got[k]
			rest.NDim = d
			for n := range got[k].N[d] {
				part := rest
				part.Off += n * got[k].Stride[d]
				got = append(got, part)
			}
			got = slices.Delete(got, k, k+1)
		}
		if i%2 == 0 {
			got = append(got[1:], randomRegions(r, spaces, 1)...)
		}
		a, b := counts(99, got), counts(99, want)
		var wrong []int
		for k, s := range spaces {
			if !slices.Equal(a[s.Lo:s.Hi], b[s.Lo:s.Hi]) {
				wrong = append(wrong, k)
			}
		}
		if v := Equal(spaces, each(want), each(got), 4); v.Stray >= 0 || v.Beyond >= 0 || !slices.Equal(v.Wrong, wrong) {
			t.Fatalf("case %d: got %+v, counting says %v\n%+v\n%+v", i, v, wrong, want, got)
		}
		if wrong == nil {
			equal++
		}
	}
	if equal < 2000 {
		t.Errorf("only %d pairs were equal", equal)
	}
}
