package arena

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Of a list that never ends no more is read than could be right.
func TestAListThatNeverEnds(t *testing.T) {
	t.Parallel()
	b, err := readList("/dev/zero", 1000)
	if err != nil || len(b) != 1001 {
		t.Errorf("%d bytes of an endless list, %v", len(b), err)
	}
	path := filepath.Join(t.TempDir(), "rank-0.safetensors")
	if err := os.WriteFile(path[:len(path)-len(".safetensors")]+".blocks", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(path); !errors.Is(err, ErrNotNoted) {
		t.Errorf("a list of zeros: %v", err)
	}
}
