// Package installtest holds what every installer must do: a suite of tests that an installer runs over a stand-in of
// its engine, and that says of each failure where the engine must be left.
package installtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
)

// Served is what a stand-in says that it serves: nothing at first.
type Served struct {
	Key   string   // "run.version"
	Files []string // that it was given for this version
}

// Bench is an installer and the stand-in of its engine. What the stand-in can't do is nil; those tests are skipped.
type Bench struct {
	Installer refit.Installer
	Served    func() Served // what the engine serves now

	Refuse func()        // the engine says no to the next installation, and keeps what it serves
	Vanish func() func() // nobody answers for the engine until the function that is returned is called
	Stall  func() func() // the engine takes an installation and never answers, until that function is called
	Pauses bool          // the installer reports a pause
}

// Factory makes a new bench; what it starts ends with the test.
type Factory func(t *testing.T) Bench

// patience bounds what may take a while on a busy machine; impatience is the deadline of a call that gets no answer.
const (
	patience   = 20 * time.Second
	impatience = 500 * time.Millisecond
)

// Conformance runs the suite.
func Conformance(t *testing.T, f Factory) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, Bench)
	}{
		{"each version is served, with its files", eachVersion},
		{"the same version again", again},
		{"an older version is the way back", wayBack},
		{"odd paths", oddPaths},
		{"several ranks", severalRanks},
		{"refused: the old version serves", refused},
		{"unreachable: nothing changes, and it can be tried again", unreachable},
		{"no answer: the error says that it is not known", noAnswer},
		{"an ended context installs nothing", endedContext},
		{"what is reported is plausible", plausible},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, f(t)) })
	}
}

// version makes the files of a version: what a stand-in that looks at them finds is its number.
func version(t *testing.T, n uint64, ranks int, dir string) refit.Installation {
	t.Helper()
	in := refit.Installation{Model: "org/model", Key: messages.Key{Run: 7, Version: n}, Dir: filepath.Join(dir, fmt.Sprintf("slot-%d", n))}
	if err := os.MkdirAll(in.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for r := range ranks {
		path := filepath.Join(in.Dir, fmt.Sprintf("rank-%d.safetensors", r))
		if err := os.WriteFile(path, fmt.Appendf(nil, "%d", n), 0o600); err != nil {
			t.Fatal(err)
		}
		in.Ranks, in.Files = append(in.Ranks, r), append(in.Files, path)
	}
	return in
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// take installs, and expects the engine to serve it.
func take(t *testing.T, b Bench, in refit.Installation) refit.Report {
	t.Helper()
	report, err := b.Installer.Install(bounded(t), in)
	if err != nil {
		t.Fatalf("install %s: %v", in.Key, err)
	}
	serves(t, b, in)
	return report
}

func serves(t *testing.T, b Bench, in refit.Installation) {
	t.Helper()
	got := b.Served()
	if got.Key != in.Key.String() {
		t.Errorf("the engine serves %q, want %s", got.Key, in.Key)
	}
	if !slices.Equal(got.Files, in.Files) {
		t.Errorf("the engine was given files %q, want %q", got.Files, in.Files)
	}
}

func eachVersion(t *testing.T, b Bench) {
	dir := t.TempDir()
	for n := uint64(1); n <= 3; n++ {
		take(t, b, version(t, n, 1, dir))
	}
}

func again(t *testing.T, b Bench) {
	in := version(t, 1, 1, t.TempDir())
	for range 3 {
		take(t, b, in)
	}
}

func wayBack(t *testing.T, b Bench) {
	dir := t.TempDir()
	one := version(t, 1, 1, dir)
	take(t, b, one)
	take(t, b, version(t, 2, 1, dir))
	take(t, b, one)
}

func oddPaths(t *testing.T, b Bench) {
	take(t, b, version(t, 1, 1, filepath.Join(t.TempDir(), `a "b" $HOME; {{c}} 'd' %20&é`)))
}

func severalRanks(t *testing.T, b Bench) {
	take(t, b, version(t, 1, 3, t.TempDir()))
}

func refused(t *testing.T, b Bench) {
	if b.Refuse == nil {
		t.Skip("this engine can't refuse")
	}
	dir := t.TempDir()
	one, two := version(t, 1, 1, dir), version(t, 2, 1, dir)
	take(t, b, one)
	b.Refuse()
	expect(bounded(t), t, b, two, refit.InstallRefused)
	serves(t, b, one)
	take(t, b, two)
}

// expect installs what must fail with a class.
func expect(ctx context.Context, t *testing.T, b Bench, in refit.Installation, classes ...refit.Class) {
	t.Helper()
	_, err := b.Installer.Install(ctx, in)
	if err == nil {
		t.Fatalf("install %s succeeded, want one of %v", in.Key, classes)
	}
	class := refit.ClassOf(err)
	if class == refit.Internal {
		class = refit.InstallRefused // what is not marked counts so
	}
	if !slices.Contains(classes, class) {
		t.Errorf("install %s failed as %s, want one of %v: %v", in.Key, class, classes, err)
	}
	if strings.TrimSpace(err.Error()) == "" {
		t.Error("the error says nothing")
	}
}

func unreachable(t *testing.T, b Bench) {
	if b.Vanish == nil {
		t.Skip("this engine can't vanish")
	}
	dir := t.TempDir()
	one, two := version(t, 1, 1, dir), version(t, 2, 1, dir)
	take(t, b, one)
	comeBack := b.Vanish()
	expect(bounded(t), t, b, two, refit.EngineUnreachable)
	comeBack()
	serves(t, b, one)
	take(t, b, two)
}

func noAnswer(t *testing.T, b Bench) {
	if b.Stall == nil {
		t.Skip("this engine always answers")
	}
	dir := t.TempDir()
	one, two := version(t, 1, 1, dir), version(t, 2, 1, dir)
	take(t, b, one)
	goOn := b.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), impatience)
	defer cancel()
	begun := time.Now()
	expect(ctx, t, b, two, refit.EngineUnknown)
	if took := time.Since(begun); took > patience {
		t.Errorf("the installer came back after %v, its context had ended after %v", took, impatience)
	}
	goOn()
	take(t, b, one) // what refit does then: back to the old version, and it must be possible
	take(t, b, two)
}

func endedContext(t *testing.T, b Bench) {
	dir := t.TempDir()
	one := version(t, 1, 1, dir)
	take(t, b, one)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Installer.Install(ctx, version(t, 2, 1, dir)); err == nil {
		t.Error("an installation under an ended context succeeded")
	}
	serves(t, b, one)
}

func plausible(t *testing.T, b Bench) {
	begun := time.Now()
	report := take(t, b, version(t, 1, 1, t.TempDir()))
	took := time.Since(begun)
	if report.Pause < 0 || report.Ready < 0 || report.Pause+report.Ready > took {
		t.Errorf("pause %v and wait for readiness %v of an installation that took %v", report.Pause, report.Ready, took)
	}
	if b.Pauses && report.Pause == 0 {
		t.Error("no pause is reported")
	}
}
