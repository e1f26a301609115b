package simulator

import "math/rand/v2"

// choices decides everything that a schedule leaves open. It replays a list, then
// either draws on from a generator and records, or answers 0 for ever.
type choices struct {
	list []uint32
	at   int
	rng  *rand.Rand // nil: replay only
}

// pick returns a number in [0, n). 0 is always the harmless choice.
func (c *choices) pick(n uint32) uint32 {
	if n <= 1 {
		return 0
	}
	if c.at < len(c.list) {
		v := c.list[c.at]
		c.at++
		return v % n
	}
	if c.rng == nil {
		return 0
	}
	v := c.rng.Uint32N(n)
	c.list = append(c.list, v)
	c.at++
	return v
}

// chance is true once in n times, and never when nothing goes wrong.
func (c *choices) chance(n uint32) bool { return c.pick(n) == n-1 && n > 1 }
