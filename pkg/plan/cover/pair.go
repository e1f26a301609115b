package cover

import (
	"math/bits"
	"slices"
)

// pairOff reports whether both lists hold the same numbers, where that can be seen without sorting: no
// number occurs twice in a list, and they lie close enough for one bit each. That is so for millions of
// equal shards, whose corners are multiples of one size. False means nothing.
func pairOff(plus, minus []uint64) bool {
	const bitsPerCorner = 64
	if len(plus) != len(minus) || len(plus) == 0 {
		return len(plus) == len(minus)
	}
	lo, hi, differ := plus[0], plus[0], uint64(0)
	for _, v := range plus {
		lo, hi = min(lo, v), max(hi, v)
		differ |= v ^ plus[0]
	}
	shift := bits.TrailingZeros64(differ | 1<<63)
	n := (hi-lo)>>shift + 1
	if n/bitsPerCorner > uint64(len(plus)) {
		return false
	}
	set := make([]uint64, n/64+1)
	for _, v := range plus {
		i := (v - lo) >> shift
		if set[i/64]>>(i%64)&1 == 1 {
			return false
		}
		set[i/64] |= 1 << (i % 64)
	}
	for _, v := range minus {
		i := (v - lo) >> shift
		if v < lo || v > hi || lo+i<<shift != v || set[i/64]>>(i%64)&1 == 0 {
			return false
		}
		set[i/64] &^= 1 << (i % 64)
	}
	return true // as many as there were, each found once
}

// bucketSize says how many corners a bucket should have: few enough to stay in the fastest memory.
const bucketSize = 256

// pairOffInBuckets reports whether both lists hold the same numbers, by ranges of numbers: what lies in one
// range of one list must lie in the same range of the other. Within a range sizes are more alike, so that
// most are paired off without sorting. It leaves both lists as they are.
func pairOffInBuckets(plus, minus []uint64) bool {
	if len(plus) != len(minus) || len(plus) < 4*bucketSize {
		return false
	}
	lo, hi := plus[0], plus[0]
	for _, v := range plus {
		lo, hi = min(lo, v), max(hi, v)
	}
	shift := bits.Len64((hi - lo) / uint64(len(plus)/bucketSize))
	p, ends := bucket(plus, lo, hi, shift)
	m, mends := bucket(minus, lo, hi, shift)
	if m == nil || !slices.Equal(ends, mends) {
		return false
	}
	from := uint32(0)
	for _, end := range ends {
		a, b := p[from:end], m[from:end]
		from = end
		if pairOff(a, b) {
			continue
		}
		slices.Sort(a)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			return false
		}
	}
	return true
}

// bucket returns the numbers in order of their buckets, and where each bucket ends; nil when a number lies
// outside [lo, hi].
func bucket(list []uint64, lo, hi uint64, shift int) (out []uint64, ends []uint32) {
	ends = make([]uint32, (hi-lo)>>shift+1)
	for _, v := range list {
		if v < lo || v > hi {
			return nil, nil
		}
		ends[(v-lo)>>shift]++
	}
	at := uint32(0)
	for i, n := range ends {
		ends[i] = at
		at += n
	}
	out = make([]uint64, len(list))
	for _, v := range list {
		b := &ends[(v-lo)>>shift]
		out[*b] = v
		*b++
	}
	return out, ends
}

// cancel takes out what both lists have in common from place n on, where neighbouring spaces touch.
func cancel(plus, minus []uint64, n int) ([]uint64, []uint64) {
	a, b := plus[n:], minus[n:]
	slices.Sort(a)
	slices.Sort(b)
	i, k, ia, kb := 0, 0, 0, 0
	for i < len(a) || k < len(b) {
		switch {
		case k == len(b) || i < len(a) && a[i] < b[k]:
			a[ia] = a[i]
			i, ia = i+1, ia+1
		case i == len(a) || b[k] < a[i]:
			b[kb] = b[k]
			k, kb = k+1, kb+1
		default:
			i, k = i+1, k+1
		}
	}
	return plus[:n+ia], minus[:n+kb]
}
