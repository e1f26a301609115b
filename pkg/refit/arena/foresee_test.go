package arena

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// all yields regions of file 0.
func all(regions ...Region) func(func(int, Region) bool) {
	return func(yield func(int, Region) bool) {
		for _, r := range regions {
			if !yield(0, r) {
				return
			}
		}
	}
}

func numbers(blocks []Block) (list []int) {
	for _, b := range blocks {
		list = append(list, b.number)
	}
	slices.Sort(list)
	return list
}

// TestOnlyBlocksThatLackNothingElseAreForeseen brings a file in two parts whose border lies in a block.
func TestOnlyBlocksThatLackNothingElseAreForeseen(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, large(t))
	slot, _ := resume(t, s, one, content)
	regions := wholeFile(s, 0)
	lo, hi := s.files[0].block(2)
	w := regions[0] // four blocks' worth of bytes, from somewhere within block 1
	first, second := Region{Off: w.Off, Run: lo + 1000 - w.Off}, Region{Off: lo + 1000, Run: w.Off + w.Run - lo - 1000}
	if got := numbers(slot.Foreseen(all(first))); slices.Contains(got, 2) || slices.Contains(got, 1) {
		t.Errorf("blocks %v are foreseen, 1 and 2 lack bytes of others", got)
	}
	write(slot, 0, first)
	got := slot.Foreseen(all(second))
	if !slices.Contains(numbers(got), 2) {
		t.Errorf("blocks %v are foreseen, 2 lacks nothing else", numbers(got))
	}
	for _, b := range got {
		if b.number == 2 && (b.Lo != lo || b.Hi != hi) {
			t.Errorf("block 2 is said to lie at %d to %d, not %d to %d", b.Lo, b.Hi, lo, hi)
		}
	}
}

// TestWhatIsForeseenIsNotedOnlyIfItCame digests a block of wrong bytes, as of an attempt that fails, and then brings the right
// ones; and digests the right ones before they are said to have come.
func TestWhatIsForeseenIsNotedOnlyIfItCame(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, large(t))
	slot, _ := resume(t, s, one, content)
	whole := wholeFile(s, 0)
	slot.Memory(0).Bytes()[whole[0].Off+whole[0].Run/2]++ // a byte that is wrong
	for _, b := range slot.Foreseen(all(whole...)) {
		slot.Foresee(b)
	}
	for k := range slot.ledgers[0].sums {
		if slot.ledgers[0].sums[k].Load() != 0 {
			t.Fatalf("block %d is noted before it came", k)
		}
	}
	blocks := slot.Foreseen(all(whole...)) // the next attempt
	for _, r := range whole {
		b := slot.Memory(0).Bytes()
		for k := r.Off; k < r.Off+r.Run; k++ {
			b[k] = value(0, k)
		}
	}
	for _, b := range blocks[:len(blocks)/2] { // of the others the digest is made when they come
		slot.Foresee(b)
	}
	for i := range s.files {
		for _, r := range wholeFile(s, i) {
			write(slot, i, r)
		}
	}
	if err := s.Seal(slot, one); err != nil {
		t.Fatal(err)
	}
	flip(t, s, slot)
	if found, ok := s.Verify(2); !ok || !found.Whole || len(found.Damaged) != 0 {
		t.Errorf("found %+v", found)
	}
}

// TestRandomAttemptsAreNotedAsTheyEnded cuts a file at random, brings it in batches of which some fail with wrong bytes, once
// or more often, and digests some of the blocks that are foreseen, in each attempt. In the end what is noted must be what lies there.
func TestRandomAttemptsAreNotedAsTheyEnded(t *testing.T) {
	t.Parallel()
	foreseen := 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := mustOpen(t, large(t))
		slot, _ := resume(t, s, one, content)
		var regions []Region
		for k, off := range s.files[0].offsets {
			regions = append(regions, shatter(rng, off, s.files[0].sizes[k])...)
		}
		if rng.IntN(2) == 0 { // else neighbours come together, as batches have it
			rng.Shuffle(len(regions), func(i, j int) { regions[i], regions[j] = regions[j], regions[i] })
		}
		for len(regions) > 0 {
			n := 1 + rng.IntN(len(regions))
			batch := regions[:n]
			regions = regions[n:]
			for attempt := range 1 + rng.IntN(3) {
				blocks := slot.Foreseen(all(batch...))
				land(slot, batch, byte(attempt)) // wrong bytes but for attempt 0
				for _, b := range blocks {
					if rng.IntN(2) == 0 {
						slot.Foresee(b)
						foreseen++
					}
				}
			}
			blocks := slot.Foreseen(all(batch...)) // the attempt that ends well
			land(slot, batch, 0)
			for _, b := range blocks {
				if rng.IntN(2) == 0 {
					slot.Foresee(b)
				}
			}
			for _, r := range batch {
				slot.Came(0, r)
			}
		}
		write(slot, 1, wholeFile(s, 1)[0])
		if err := s.Seal(slot, one); err != nil {
			t.Fatal(err)
		}
		flip(t, s, slot)
		if found, ok := s.Verify(1); !ok || !found.Whole || len(found.Damaged) != 0 || found.Nbytes != tensorBytes(s) {
			t.Errorf("seed %d: found %+v", seed, found)
		}
	}
	if foreseen < 100 {
		t.Errorf("only %d blocks were foreseen: the test says little", foreseen)
	}
}

// land writes regions of file 0, each byte off by wrong.
func land(slot *Slot, regions []Region, wrong byte) {
	b := slot.Memory(0).Bytes()
	for _, r := range regions {
		r.each(func(lo, hi int64) bool {
			for k := lo; k < hi; k++ {
				b[k] = value(0, k) + wrong
			}
			return true
		})
	}
}
