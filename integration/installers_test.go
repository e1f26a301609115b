package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script is an engine of its own: it notes what it is given in a file.
const script = `
for f in $DRYDOCK_FILES; do test -s "$f" || exit 1; done
echo "$DRYDOCK_VERSION" >> "$1/served-$2"
`

// withScript are the flags of a receiver whose engine the script is.
func withScript(dir, name string) []string {
	args := []string{"--installer", "exec"}
	for _, a := range []string{"/bin/sh", "-c", script, "engine", dir, name} {
		args = append(args, "--exec="+a)
	}
	return args
}

// was reads what an engine was given, in order.
func was(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "served-"+name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

// TestACommandInstallsEachVersion kills the receiver between two versions: its next life gives the engine what serves by
// name once more, and goes on.
func TestACommandInstallsEachVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWorld(t, shape{receivers: 1})
	publishers := w.publishers("--versions", "2")
	r := w.receiver("host", withScript(dir, "a")...)
	r.serves(1)
	r.kill()
	r = w.receiver("host", withScript(dir, "a")...)
	r.awaitSaid("what serves is as it was when it came")
	r.awaitSaid("the engine has what serves by name")
	w.open(1)
	r.serves(2)
	r.leavesCleanly(true)
	leave(t, publishers...)
	if got := was(t, dir, "a"); got != "1 1 2" {
		t.Errorf("the engine was given %s", got)
	}
}
