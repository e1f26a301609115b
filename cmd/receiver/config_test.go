package main

import (
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/internal/cli"
)

// TestNamesAreTokens: a name that no status can carry is refused before anything is opened.
func TestNamesAreTokens(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "bad name", "a.b", strings.Repeat("x", 65)} {
		c := config{Name: name, TP: 1, Ranks: []int{0}, engine: engine{Installer: "shm", EngineGroupSize: 1}}
		if err := c.Run(t.Context(), nil); cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), "--name") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
