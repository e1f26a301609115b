package docstest

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	word  = regexp.MustCompile(`[A-Za-z_]{3,}`)
	block = regexp.MustCompile("(?s)<!-- demo:[^\n]*\n```\n(.*?)```")
)

// words reduces a line of the demo to what doesn't change from run to run: no numbers, units, paths, ids or attributes.
func words(line string) string {
	for _, cut := range []string{"/tmp", "/dev/shm", "(generated", "rank=", "bytes=", "segments=", "transport=", "lease.state", "version=", "messaging.", ", model"} {
		line, _, _ = strings.Cut(line, cut)
	}
	line = regexp.MustCompile(`trace [0-9a-f]{32}`).ReplaceAllString(line, "trace")
	return strings.Join(word.FindAllString(line, -1), " ")
}

// TestReadmeShowsTodaysDemo runs the demo on a tiny checkpoint: each line that README.md shows is one that it writes.
// Times, sizes and the order of processes are another run's.
func TestReadmeShowsTodaysDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the programs")
	}
	shown := block.FindStringSubmatch(read(t, "README.md"))
	if shown == nil {
		t.Fatal("README.md has no block of the demo's output")
	}
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = "../.."
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("go", "build", "-buildvcs=false", "-o", dir, "./cmd/...")
	refitctl, checkpoint := filepath.Join(dir, "refitctl"), filepath.Join(dir, "checkpoint")
	run(refitctl, "checkpoint", checkpoint, "--tiny")
	var written []string
	for line := range strings.Lines(run(refitctl, "demo", "--checkpoint", checkpoint, "--timeout", "2m")) {
		written = append(written, anyProcess(words(line)))
	}
	for line := range strings.Lines(shown[1]) {
		if w := anyProcess(words(line)); !strings.Contains(line, "…  ") && strings.Contains(line, "… ") {
			continue // says what is left out
		} else if !slices.Contains(written, w) {
			t.Errorf("README.md shows a line that the demo doesn't write: %q, by its words %q", line, w)
		}
	}
}

// anyProcess makes lines equal that several processes write, whichever was first.
func anyProcess(words string) string {
	return regexp.MustCompile(`\b(publisher|receiver)\b`).ReplaceAllString(words, "process")
}
