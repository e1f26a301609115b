package arena

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
)

// Found is what was in a slot already when it was looked at.
type Found struct {
	Whole   bool     // the slot holds all of the version, verified; there is nothing to be written
	Nbytes  int64    // of tensors, in blocks that are as they were noted
	Damaged []string // blocks that have changed since they were noted, for people
}

// Resume hands out a slot for staging a version, with what an earlier attempt or an earlier life has brought of the same
// bytes: all of it is read and compared with the digests that were noted when it came. Where a slot holds the whole version,
// it is handed out sealed; else its headers are wiped. A slot that engines still read is left to them: it is unlinked,
// and another is made in its place. Errors: ErrNoSlot; ErrGone; no room.
func (s *Set) Resume(v Version, c Content, workers int) (*Slot, Found, error) {
	slot, err := s.pick(v, c)
	if err != nil {
		return nil, Found{}, err
	}
	var found Found
	if slot.About(v, c) {
		found = slot.verify(workers) // without the lock: it may take a while, and the slot is nobody else's
	}
	if found.Whole && slot.holds == v {
		return slot, found, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot.inUse() { // whole or not: its readers keep it as it is
		i := slices.Index(s.slots, slot)
		if i < 0 {
			return nil, Found{}, fmt.Errorf("stage into %s: %w", slot.dir, ErrGone)
		}
		if slot, err = s.replace(i); err != nil {
			return nil, Found{}, err
		}
		found = Found{Damaged: found.Damaged}
		slot.state = stateStaging
	}
	found.Whole = false
	if err := slot.begin(v, c); err != nil {
		slot.state = stateFree
		return nil, Found{}, err
	}
	return slot, found, nil
}

// pick takes a slot out of use for staging v: one with bytes of it, else one that nobody reads, else any.
func (s *Set) pick(v Version, c Content) (*Slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("acquire arena in %s: %w", s.root, ErrGone)
	}
	s.reap()
	var best *Slot
	for _, slot := range s.slots {
		if slot.state != stateFree && slot.state != stateRetained {
			continue
		}
		if best == nil || slot.About(v, c) {
			best = slot
		}
	}
	if best == nil {
		if len(s.slots) >= s.count {
			return nil, fmt.Errorf("acquire arena in %s: %w", s.root, ErrNoSlot)
		}
		fresh, err := s.grow() // one was quarantined, or left to readers when there was no room for another
		if err != nil {
			return nil, err
		}
		best = fresh
	}
	best.state = stateStaging
	return best, nil
}

// About says whether what was noted of the slot's bytes is about a version.
func (s *Slot) About(v Version, c Content) bool {
	for i, l := range s.ledgers {
		if l.label != labelOf(s.files[i], v, c) {
			return false
		}
	}
	return true
}

// begun says whether anything is noted of the slot's bytes.
func (s *Slot) begun() bool {
	return slices.ContainsFunc(s.ledgers, func(l *ledger) bool {
		for k := range l.sums {
			if l.sums[k].Load() != 0 {
				return true
			}
		}
		return false
	})
}

// begin makes the slot writable for a version: headers invalid, ledgers open.
func (s *Slot) begin(v Version, c Content) error {
	s.wipe()
	for i, l := range s.ledgers {
		if err := l.begin(labelOf(s.files[i], v, c)); err != nil {
			return err
		}
	}
	return nil
}

// verify compares a slot's bytes with its ledgers.
func (s *Slot) verify(workers int) (f Found) {
	f.Whole = true
	for i, l := range s.ledgers {
		nbytes, bad := l.verify(s.mems[i].Bytes(), workers, nil)
		f.Nbytes += nbytes
		f.Damaged = append(f.Damaged, s.places(i, bad)...)
		for k := range l.sums {
			f.Whole = f.Whole && l.whole(k)
		}
		if !s.headerStands(i) { // it says where the tensors are and what they are: as good as damage to them
			f.Whole = false
			f.Damaged = append(f.Damaged, fmt.Sprintf("%s header, bytes 0 to %d", s.Path(i), s.files[i].header))
		}
	}
	return f
}

// places names blocks of the i-th file, in order.
func (s *Slot) places(i int, blocks []int) (names []string) {
	slices.Sort(blocks)
	for _, k := range blocks {
		lo, hi := s.files[i].block(k)
		names = append(names, fmt.Sprintf("%s bytes %d to %d", s.Path(i), lo, hi))
	}
	return names
}

// Damaged compares the blocks that regions touch, each once, with what was noted when they came, and names those that
// differ. Of blocks of which nothing was noted it can't tell. The regions come as number of the file and place in it.
func (s *Slot) Damaged(regions iter.Seq2[int, Region], workers int) (names []string) {
	touched := make([][]bool, len(s.files))
	for i, f := range s.files {
		touched[i] = make([]bool, f.blocks())
	}
	for i, r := range regions {
		r.each(func(lo, hi int64) bool {
			s.files[i].eachBlock(lo, hi, func(k int, _ int64) { touched[i][k] = true })
			return true
		})
	}
	for i, l := range s.ledgers {
		_, bad := l.verify(s.mems[i].Bytes(), workers, touched[i])
		names = append(names, s.places(i, bad)...)
	}
	return names
}

// headerStands says whether the i-th file has the header that it was sealed with. One that isn't sealed has none to lose.
func (s *Slot) headerStands(i int) bool {
	if s.holds.IsZero() {
		return true
	}
	want, err := s.files[i].headerFor(s.holds)
	return err == nil && bytes.Equal(want, s.mems[i].Bytes()[:len(want)])
}

// Verify reads what serves and compares it with what was noted when it came. ok is false where nothing serves, or where
// nothing was noted, as by a receiver of an older make.
func (s *Set) Verify(workers int) (f Found, ok bool) {
	slot := s.Serving()
	if slot == nil {
		return f, false
	}
	noted := true
	for _, l := range slot.ledgers {
		for k := range l.sums {
			noted = noted && l.whole(k)
		}
	}
	if !noted {
		return f, false
	}
	return slot.verify(workers), true
}

// Region is a strided part of a rank's file: runs of Run bytes, at Off and at each combination of strides from there.
type Region struct {
	Off, Run      int64
	Shape, Stride []int64 // of the runs; bytes, outermost first
}

// Came notes that a region of the i-th file has its bytes, for good. Each byte of a tensor comes once.
func (s *Slot) Came(i int, r Region) {
	l, mem := s.ledgers[i], s.mems[i].Bytes()
	if l.out == nil {
		return // the slot was not handed out by Resume
	}
	at, sum := -1, int64(0) // short runs of one block are counted together
	r.each(func(lo, hi int64) bool {
		l.f.eachBlock(lo, hi, func(k int, n int64) {
			if k != at && at >= 0 {
				l.pass(at, sum, mem)
				sum = 0
			}
			at, sum = k, sum+n
		})
		return true
	})
	if at >= 0 {
		l.pass(at, sum, mem)
	}
}

// pass counts bytes of a block, unless it was whole before: then they were written over with the same.
func (l *ledger) pass(k int, nbytes int64, mem []byte) {
	if l.left[k].Load() > 0 {
		l.came(k, nbytes, mem)
	}
}

// Has says whether the slot was handed out with all of a region's bytes in the i-th file.
func (s *Slot) Has(i int, r Region) bool {
	l := s.ledgers[i]
	has := true
	r.each(func(lo, hi int64) bool {
		l.f.eachBlock(lo, hi, func(k int, _ int64) { has = has && l.sums[k].Load() != 0 })
		return has
	})
	return has
}

// each yields the runs until the function says no, and then says no, too. Dimensions that only lengthen the run are taken as such.
func (r *Region) each(do func(lo, hi int64) bool) bool {
	run, dims := r.Run, len(r.Shape)
	for dims > 0 && (r.Stride[dims-1] == run || r.Shape[dims-1] == 1) {
		if r.Shape[dims-1] > 1 {
			run *= r.Shape[dims-1]
		}
		dims--
	}
	return walk(r.Off, run, r.Shape[:dims], r.Stride[:dims], do)
}

func walk(off, run int64, shape, stride []int64, do func(lo, hi int64) bool) bool {
	if len(shape) == 0 {
		return run == 0 || do(off, off+run)
	}
	for i := range shape[0] {
		if !walk(off+i*stride[0], run, shape[1:], stride[1:], do) {
			return false
		}
	}
	return true
}
