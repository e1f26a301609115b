package docstest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var tree = os.DirFS("../..")

// pages gives the repository's Markdown files, from its root.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if path.Ext(name) == ".md" {
			found = append(found, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fence    = regexp.MustCompile("(?s)(?:^|\n)```.*?\n```")
	code     = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unanchor = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// anchors gives the fragments by which a page's headings are linked.
func anchors(text string) []string {
	var all []string
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(unanchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		prose := code.ReplaceAllString(fence.ReplaceAllString(read(t, page), ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := page
			if target != "" {
				to = path.Join(path.Dir(page), target)
			}
			if _, err := fs.Stat(tree, to); err != nil {
				t.Errorf("%s: link to %s, which is not there", page, m[1])
			} else if anchor != "" && path.Ext(to) == ".md" && !slices.Contains(anchors(read(t, to)), anchor) {
				t.Errorf("%s: link to %s, but %s has no such heading", page, m[1], to)
			}
		}
	}
}

func TestMakeTargetsExist(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	named := regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)")
	for _, page := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(read(t, page), -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).MatchString(makefile) {
				t.Errorf("%s: `make %s`, which the Makefile lacks", page, m[1])
			}
		}
	}
}

// TestPagesAreListed: docs/README.md leads to every page.
func TestPagesAreListed(t *testing.T) {
	t.Parallel()
	index := read(t, "docs/README.md")
	found, err := fs.Glob(tree, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range found {
		if base := path.Base(page); base != "README.md" && !strings.Contains(index, "]("+base+")") {
			t.Errorf("docs/README.md has no link to %s", base)
		}
	}
}

// TestDecisionsAreListed: each decision is in the list, under its own title.
func TestDecisionsAreListed(t *testing.T) {
	t.Parallel()
	index := read(t, "docs/decisions/README.md")
	found, err := fs.Glob(tree, "docs/decisions/[0-9]*.md")
	if err != nil || len(found) == 0 {
		t.Fatalf("no decisions found: %v", err)
	}
	for _, page := range found {
		title, _, _ := strings.Cut(strings.TrimPrefix(read(t, page), "# "), "\n")
		if want := "[" + title + "](" + path.Base(page) + ")"; !strings.Contains(index, want) {
			t.Errorf("docs/decisions/README.md lacks %s", want)
		}
		if number := path.Base(page)[:3]; !strings.HasPrefix(title, number+": ") {
			t.Errorf("%s: titled %q, without its number", page, title)
		}
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	got := anchors("# Run `one` test\n```\n# not a heading\n```\n## What's new, in 1.0\n")
	if want := []string{"run-one-test", "whats-new-in-10"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
