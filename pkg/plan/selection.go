package plan

import (
	"path"
	"strconv"
	"strings"
)

// Selector makes an Options.Select for a table and destinations.
type Selector func(t *Table, dests []Dest) func(dest int, c *Copy) bool

// SelectGlobs keeps copies whose source or parameter matches one of the globs.
func SelectGlobs(globs []string) Selector {
	return func(_ *Table, dests []Dest) func(int, *Copy) bool {
		return func(dest int, c *Copy) bool {
			return matches(globs, c.Source) || matches(globs, paramName(dests, dest, c))
		}
	}
}

// SelectLayers keeps copies of the given layers: sources with ".layers.N." (or ".h.N.") in their names.
func SelectLayers(layers []int) Selector { return selectNumbered(layers, "layers", "h") }

// SelectExperts keeps copies of the given experts: sources with ".experts.N." in their names.
func SelectExperts(experts []int) Selector { return selectNumbered(experts, "experts") }

// selectNumbered keeps sources with one of the numbers after one of the words.
func selectNumbered(numbers []int, words ...string) Selector {
	keep := map[int]bool{}
	for _, n := range numbers {
		keep[n] = true
	}
	return func(*Table, []Dest) func(int, *Copy) bool {
		return func(_ int, c *Copy) bool {
			n, ok := numberAfter(c.Source, words)
			return ok && keep[n]
		}
	}
}

// SelectAll keeps copies that every selector keeps.
func SelectAll(list ...Selector) Selector {
	return func(t *Table, dests []Dest) func(int, *Copy) bool {
		fs := make([]func(int, *Copy) bool, len(list))
		for i, s := range list {
			fs[i] = s(t, dests)
		}
		return func(dest int, c *Copy) bool {
			for _, f := range fs {
				if !f(dest, c) {
					return false
				}
			}
			return true
		}
	}
}

// matches reports whether one of the globs matches; a broken one matches nothing.
func matches(globs []string, name string) bool {
	for _, g := range globs {
		if ok, _ := path.Match(g, name); ok {
			return true
		}
	}
	return false
}

// paramName returns the name of a copy's parameter; "" for an index that New will refuse.
func paramName(dests []Dest, dest int, c *Copy) string {
	if c.Param < 0 || c.Param >= len(dests[dest].Params) {
		return ""
	}
	return dests[dest].Params[c.Param].Name
}

// numberAfter finds the number that follows one of the words in a dotted name.
func numberAfter(name string, words []string) (int, bool) {
	parts := strings.Split(name, ".")
	for i := 1; i < len(parts); i++ {
		for _, w := range words {
			if parts[i-1] == w {
				if n, err := strconv.Atoi(parts[i]); err == nil {
					return n, true
				}
			}
		}
	}
	return 0, false
}
