package messages

import (
	"context"
	"fmt"
	"slices"
)

// checkVersionGroups checks the groups of all ranks against the union of their
// sources: members exist, members of an alias group have one dtype and shape, and of a
// partial version's group either all members changed or none.
func checkVersionGroups(ranks []RankVersion) error {
	if !slices.ContainsFunc(ranks, func(r RankVersion) bool { return len(r.Layout.Groups) > 0 }) {
		return nil
	}
	u := unionOf(ranks)
	for rank, r := range ranks {
		for _, g := range r.Layout.Groups {
			if err := u.check(g); err != nil {
				return fmt.Errorf("rank %d: group of %q: %w", rank, g.Members[0], err)
			}
		}
	}
	return nil
}

// union is what all ranks together say of each source.
type union struct {
	first   map[string]sourceRef
	changed map[string]bool
	partial bool
}

type sourceRef struct {
	layout *Layout
	index  int
}

func unionOf(ranks []RankVersion) *union {
	u := &union{first: make(map[string]sourceRef), changed: make(map[string]bool)}
	for _, r := range ranks {
		for i, name := range r.Layout.Names {
			if _, ok := u.first[name]; !ok {
				u.first[name] = sourceRef{r.Layout, i}
			}
		}
		if r.Table.Base != nil {
			u.partial = true
			for _, i := range r.Table.Changed {
				if int(i) < len(r.Layout.Names) { // a publisher may lie; Assemble says so
					u.changed[r.Layout.Names[i]] = true
				}
			}
		}
	}
	return u
}

func (u *union) check(g Group) error {
	lead, ok := u.first[g.Members[0]]
	if !ok {
		return fmt.Errorf("no rank has this source: %w", ErrContradiction)
	}
	for _, name := range g.Members[1:] {
		m, ok := u.first[name]
		switch {
		case !ok && g.Kind == GroupAlias:
			continue // an alias may be a name only, whose bytes the first member holds
		case !ok:
			return fmt.Errorf("no rank has its member %q: %w", name, ErrContradiction)
		case g.Kind == GroupAlias && !m.equal(lead):
			return fmt.Errorf("its alias %q has another dtype or shape: %w", name, ErrContradiction)
		}
		if u.partial && u.changed[name] != u.changed[g.Members[0]] {
			return fmt.Errorf("of it and %q only one changed: %w", name, ErrContradiction)
		}
	}
	return nil
}

func (s sourceRef) equal(o sourceRef) bool {
	return s.layout.DTypes[s.index] == o.layout.DTypes[o.index] &&
		slices.Equal(s.layout.Shape(s.index), o.layout.Shape(o.index))
}

// checkGroupsAtCommit reads the layouts of a version that is about to be committed and
// checks its groups. Layouts are cached, so that it costs something once a run, and
// nothing for a model without groups.
func (c *Control) checkGroupsAtCommit(ctx context.Context, key Key, tables []*Table) error {
	if !slices.ContainsFunc(tables, func(t *Table) bool { return t.Grouped }) {
		return nil
	}
	v := &Version{Manifest: &Manifest{Key: key}, Ranks: make([]RankVersion, len(tables))}
	for i, t := range tables {
		v.Ranks[i].Table = t
	}
	if err := c.fetchLayouts(ctx, v); err != nil {
		return fmt.Errorf("read layouts to check groups: %w", err)
	}
	return checkVersionGroups(v.Ranks)
}
