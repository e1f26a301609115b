package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/install/installtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is a shell script over a folder: what it serves is a file, and what befalls it are files too.
const engine = `
cd "$1" || exit 69
if test -e gone; then echo "nobody is at home"; exit 69; fi
if test -e refuse; then rm refuse; echo "bad weights in $DRYDOCK_KEY"; exit 1; fi
if test -e stall; then cat stall > /dev/null; fi
printf '%s\n' "$DRYDOCK_KEY" "$DRYDOCK_FILES" > next
mv next serves
echo DRYDOCK_PAUSE_MS=0.001
`

func newEngine(t *testing.T) installtest.Bench {
	t.Helper()
	dir := t.TempDir()
	touch := func(name string) func() {
		return func() {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func() { return func() { _ = os.Remove(filepath.Join(dir, name)) } }
	c, err := New(Config{Args: []string{"/bin/sh", "-c", engine, "engine", dir}, Env: []string{"PATH=/usr/bin:/bin"}, Grace: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return installtest.Bench{
		Installer: c, Pauses: true,
		Served: func() (s installtest.Served) {
			b, err := os.ReadFile(filepath.Join(dir, "serves"))
			if err != nil {
				return s
			}
			lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
			return installtest.Served{Key: lines[0], Files: lines[1:]}
		},
		Refuse: touch("refuse"),
		Vanish: func() func() { touch("gone")(); return remove("gone") },
		Stall: func() func() {
			if err := syscall.Mkfifo(filepath.Join(dir, "stall"), 0o600); err != nil { // whoever reads it waits for a writer
				t.Fatal(err)
			}
			return remove("stall")
		},
	}
}

func TestConformance(t *testing.T) { installtest.Conformance(t, newEngine) }

var version = refit.Installation{
	Model: "m", Key: messages.Key{Run: 1, Version: 5}, Dir: "/arenas/slot-1", Ranks: []int{0}, Files: []string{"/arenas/slot-1/rank-0.safetensors"},
}

// shell runs a script with the version's folder as its argument.
func shell(t *testing.T, script string, change func(*Config)) (refit.Report, error) {
	t.Helper()
	cfg := Config{Args: []string{"/bin/sh", "-c", script, "script", "{{.Dir}}"}, Env: []string{"PATH=/usr/bin:/bin"}, Timeout: 10 * time.Second}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c.Install(t.Context(), version)
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]refit.Class{
		"exit 1":      refit.InstallRefused,
		"exit 69":     refit.EngineUnreachable,
		"exit 70":     refit.EngineUnknown,
		"kill -9 $$":  refit.EngineUnknown,
		"exit 255":    refit.InstallRefused,
		"kill -15 $$": refit.EngineUnknown,
	} {
		_, err := shell(t, "echo working on $1; echo it hurts >&2; "+script, nil)
		if got := refit.ClassOf(err); got != want {
			t.Errorf("%s: class %s, want %s: %v", script, got, want, err)
		}
		if err == nil || !strings.Contains(err.Error(), "/bin/sh") || !strings.Contains(err.Error(), "working on /arenas/slot-1\nit hurts") {
			t.Errorf("%s: the error does not name the program and its last words: %v", script, err)
		}
	}
}

func TestAProgramThatIsNotThereCountsAsUnreachable(t *testing.T) {
	t.Parallel()
	_, err := shell(t, "", func(c *Config) { c.Args[0] = "/no/such/program" })
	if refit.ClassOf(err) != refit.EngineUnreachable || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("%v", err)
	}
}

// TestTheWholeGroupEndsWithTheTimeOut has the program start a child that ignores SIGTERM.
func TestTheWholeGroupEndsWithTheTimeOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "never")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`trap "" TERM; (cat %[1]s/never) & echo $! > %[1]s/child; echo started; wait`, dir)
	_, err := shell(t, script, func(c *Config) { c.Timeout, c.Grace = time.Second, 100*time.Millisecond })
	if refit.ClassOf(err) != refit.EngineUnknown || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not done within 1s") {
		t.Errorf("%v", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	gone := time.After(10 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); runs(child); {
		select {
		case <-tick.C:
		case <-gone:
			t.Fatalf("the program's child %d outlives the time-out", child)
		}
	}
}

// runs says whether a process is there and not only waits to be collected by init.
func runs(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func TestReports(t *testing.T) {
	t.Parallel()
	report, err := shell(t, "echo DRYDOCK_PAUSE_MS=x; echo DRYDOCK_PAUSE_MS=12.5; echo DRYDOCK_READY_MS=-1; printf DRYDOCK_READY_MS=3", nil)
	if want := (refit.Report{Pause: 12500 * time.Microsecond, Ready: 3 * time.Millisecond}); err != nil || report != want {
		t.Errorf("report %+v, %v; want %+v", report, err, want)
	}
}

func TestLongOutputIsCut(t *testing.T) {
	t.Parallel()
	_, err := shell(t, "i=0; while test $i -lt 2000; do echo line $i of a long story; i=$((i+1)); done; exit 3", nil)
	if err == nil || len(err.Error()) > tailBytes+200 || !strings.HasSuffix(err.Error(), "line 1999 of a long story") {
		t.Errorf("the error has %d bytes: %v", len(err.Error()), err)
	}
}

func TestAChildThatStaysBehindIsNoFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "hold"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The child keeps the output open until the file is written to.
	if _, err := shell(t, fmt.Sprintf("cat %s/hold &", dir), func(c *Config) { c.Grace = 50 * time.Millisecond }); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hold"), nil, 0); err != nil {
		t.Fatal(err)
	}
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no program":       {},
		"empty program":    {Args: []string{""}},
		"bad template":     {Args: []string{"x", "{{.Nope}}"}},
		"negative timeout": {Args: []string{"x"}, Timeout: -1},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
