package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/refit"
)

// TestCaptureNamesUnknownSource has a receiver ask for what no trainer publishes. Nothing is read or served, and the
// status names the source.
func TestCaptureNamesUnknownSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	b, err := os.ReadFile(built.captures[2])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "capture.json")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), `"model.norm.weight"`, `"model.nrom.weight"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.receiver("host", "--capture", path)
	publishers := w.publishers("--versions", "1")
	failure := r.failed(1, refit.PlanRefused)
	if !strings.Contains(failure.Text, "model.nrom.weight") {
		t.Errorf("the failure doesn't name the source: %s", failure.Text)
	}
	r.holdsNothingThatServes()
	w.unread(1)
	r.leavesCleanly(false)
	leave(t, publishers...)
}
