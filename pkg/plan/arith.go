package plan

import (
	"cmp"
	"math"
	"slices"
)

// mul multiplies non-negative numbers and reports whether the product fits.
func mul(a, b int64) (int64, bool) {
	if a < 0 || b < 0 || (b != 0 && a > math.MaxInt64/b) {
		return 0, false
	}
	return a * b, true
}

// add adds non-negative numbers, unless a sum before already failed.
func add(a, b int64, ok bool) (int64, bool) {
	if !ok || a < 0 || b < 0 || a > math.MaxInt64-b {
		return 0, false
	}
	return a + b, true
}

// gcd returns the greatest common divisor of positive numbers.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ceilDiv rounds towards the next larger integer, also below zero, where Go rounds towards zero.
func ceilDiv(a, b int64) int64 { // b > 0
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// floorDiv rounds towards the next smaller integer, also below zero.
func floorDiv(a, b int64) int64 { // b > 0
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// sortBy sorts by an integer key, equal keys in the order in which they came.
func sortBy[T any](list []T, key func(T) int64) {
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
}

// nelems returns the number of elements of a shape whose product is known to fit.
func nelems(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
}
