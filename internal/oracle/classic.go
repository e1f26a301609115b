package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/drydock-rl/drydock/pkg/plan"
)

// classicTally compares the classic plan's counts with those that the reference gave for the same cases.
type classicTally struct {
	equal, unequal int
	lines          []string
}

// limits are the settings that the file has the reference's answers for.
var limits = map[string]int{"exact": 1 << 30, "limit4": 4}

// judge counts the case as the reference does, under both of its limits. Cases without its answer say nothing.
func (t *classicTally) judge(c *goldenCase) error {
	if c.Peer == nil {
		return nil
	}
	w, err := c.world()
	if err != nil {
		return err
	}
	table, err := plan.Merge(w.Layouts)
	if err != nil {
		return err
	}
	d, _, err := c.dest(false)
	if err != nil {
		return err
	}
	for name, limit := range limits {
		want, ok := c.Peer[name]
		if !ok {
			continue
		}
		got, err := plan.CountClassic(table, &d, limit)
		if err != nil {
			return err
		}
		if diff := want.differs(got, c.ranks); diff != "" {
			t.unequal++
			if len(t.lines) < 20 {
				t.lines = append(t.lines, fmt.Sprintf("case %s, %s: %s", c.ID, name, diff))
			}
			continue
		}
		t.equal++
	}
	return nil
}

// differs says what is not equal.
func (p *goldenPeer) differs(c *plan.ClassicCounts, sessions map[string]int) string {
	switch {
	case p.Descriptors != c.DescriptorCount:
		return fmt.Sprintf("%d descriptors, the reference has %d", c.DescriptorCount, p.Descriptors)
	case p.Bytes != c.BytesPlanned:
		return fmt.Sprintf("%d bytes, the reference has %d", c.BytesPlanned, p.Bytes)
	case p.ExactDescriptors != c.ExactDescriptorCount:
		return fmt.Sprintf("%d exact descriptors, the reference has %d", c.ExactDescriptorCount, p.ExactDescriptors)
	case p.ExactBytes != c.ExactBytes:
		return fmt.Sprintf("%d exact bytes, the reference has %d", c.ExactBytes, p.ExactBytes)
	case !slices.Equal(p.Fallback, c.Fallback):
		return fmt.Sprintf("fallback %v, the reference has %v", c.Fallback, p.Fallback)
	case !slices.Equal(p.FullPulls, c.FullPulls):
		return fmt.Sprintf("full pulls %v, the reference has %v", c.FullPulls, p.FullPulls)
	case !slices.Equal(p.Unbounded, c.Unbounded):
		return fmt.Sprintf("unbounded %v, the reference has %v", c.Unbounded, p.Unbounded)
	}
	want := make([]int, 0, len(p.Sessions))
	for _, s := range p.Sessions {
		want = append(want, sessions[s])
	}
	slices.Sort(want)
	if !slices.Equal(c.Sessions, want) {
		return fmt.Sprintf("sessions %v, the reference has %v", c.Sessions, want)
	}
	return ""
}

// print writes how many of the reference's answers came out the same, and whether all did.
func (t *classicTally) print(out io.Writer, name string) bool {
	if t.equal+t.unequal == 0 {
		return true
	}
	fmt.Fprintf(out, "%s: classic counts: %d equal to the reference's, %d not\n", name, t.equal, t.unequal)
	for _, l := range t.lines {
		fmt.Fprintln(out, "  ", l)
	}
	return t.unequal == 0
}
