// Package reportstest holds a list of what systems of this kind got wrong in public against the tests that hold each kind of
// it here. A list that names a test which is gone, or leaves out a report of the page that they were collected on, fails.
package reportstest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Row is one report, or several of one kind.
type Row struct {
	Report string   // first column of the page
	Kind   string   // what must hold here, in words
	Held   []string // by which tests and benchmarks: folder and function
}

// Check looks up every function of the list below root, the repository's, and every row of a section of the page in the
// list. It skips the latter, saying so, where the page is not beside the repository.
func Check(t *testing.T, root, section string, rows []Row) {
	t.Helper()
	for _, r := range rows {
		if len(r.Held) == 0 || r.Kind == "" {
			t.Errorf("%s: no test, or no kind", r.Report)
		}
		for _, held := range r.Held {
			folder, name, _ := strings.Cut(held, " ")
			if !declares(t, filepath.Join(root, folder), name) {
				t.Errorf("%s, %s: there is no %s in %s", r.Report, r.Kind, name, folder)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "..", "shared", "faults.md"))
	if err != nil {
		t.Skipf("the page of reports is not here: %v", err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	listed := regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(text, -1)
	if !found || len(listed) < 3 {
		t.Fatal("the page has no such section")
	}
	for _, row := range listed[1:] { // after the head
		name := strings.TrimSpace(row[1])
		has := slices.ContainsFunc(rows, func(r Row) bool { return r.Report == name })
		if strings.Trim(name, "- ") != "" && !has {
			t.Errorf("%s is not in the list", name)
		}
	}
}

// declares says whether a folder's tests have a test or benchmark of that name.
func declares(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	argument := "t *testing.T"
	if strings.HasPrefix(name, "Benchmark") {
		argument = "b *testing.B"
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), fmt.Sprintf("\nfunc %s(%s) {", name, argument)) {
			return true
		}
	}
	return false
}
