package docstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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
	refitctl, checkpoint := filepath.Join(programs(t), "refitctl"), filepath.Join(t.TempDir(), "checkpoint")
	run(t, refitctl, "checkpoint", checkpoint, "--tiny")
	var written []string
	for line := range strings.Lines(run(t, refitctl, "demo", "--checkpoint", checkpoint, "--timeout", "2m")) {
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

// run runs a program from the repository's root, and gives what it writes.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// programs builds the programs, once for all tests, and gives their folder.
func programs(t *testing.T) string {
	t.Helper()
	built.Do(func() { run(t, "go", "build", "-buildvcs=false", "-o", built.dir, "./cmd/...") })
	return built.dir
}

var built struct {
	sync.Once
	dir string
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "drydock-docs-")
	if err != nil {
		panic(err)
	}
	built.dir = dir
	code := m.Run()
	_ = os.RemoveAll(dir) // of no interest to the tests
	os.Exit(code)
}

// anyProcess makes lines equal that several processes write, whichever was first.
func anyProcess(words string) string {
	return regexp.MustCompile(`\b(publisher|receiver)\b`).ReplaceAllString(words, "process")
}

var (
	flag    = regexp.MustCompile(`(?:^|[ \[])(--[a-z][a-z0-9-]*)`)
	command = regexp.MustCompile(`(?m)^ {2}([a-z][a-z-]*(?: [a-z]+)?) {2,}`)
	called  = regexp.MustCompile("(?:^|[`$(/ ])(publisher|receiver|refitctl)((?: [^`|#\\n]*)?)")
)

// flagsOf are the flags of a program and of all its commands, by their help.
func flagsOf(t *testing.T, program string, of ...string) map[string]bool {
	t.Helper()
	help := run(t, program, append(slices.Clone(of), "--help")...)
	all := map[string]bool{}
	for _, m := range flag.FindAllStringSubmatch(help, -1) {
		all[m[1]] = true
	}
	_, commands, _ := strings.Cut(help, "\nCommands:\n")
	for _, m := range command.FindAllStringSubmatch(commands, -1) {
		below := strings.Fields(m[1])
		if len(of) > 0 && slices.Equal(of, below[:1]) {
			below = below[1:] // "bench rdma" is what the help of bench says
		}
		for f := range flagsOf(t, program, append(slices.Clone(of), below...)...) {
			all[f] = true
		}
	}
	return all
}

// TestFlagsOnPagesExist: what a page has somebody type, a program takes.
func TestFlagsOnPagesExist(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the programs")
	}
	known := map[string]map[string]bool{}
	for _, program := range []string{"publisher", "receiver", "refitctl"} {
		known[program] = flagsOf(t, filepath.Join(programs(t), program))
	}
	found := 0
	for _, page := range pages(t) {
		for _, call := range called.FindAllStringSubmatch(read(t, page), -1) {
			for _, f := range flag.FindAllStringSubmatch(call[2], -1) {
				found++
				if !known[call[1]][f[1]] {
					t.Errorf("%s: %s has no flag %s: %q", page, call[1], f[1], call[0])
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d flags on all pages: the pages are no longer read", found)
	}
}
