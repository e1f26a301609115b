package rdma_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// A file that is far too long, as of another kind or a device, is not read to its end.
func TestCostsOfAnEndlessFile(t *testing.T) {
	t.Parallel()
	long := filepath.Join(t.TempDir(), "costs.json")
	if err := os.WriteFile(long, []byte(strings.Repeat(" ", 70<<10)+`{"format":"drydock.costs.v1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{long, "/dev/zero"} {
		if _, err := rdma.LoadCosts(path); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
