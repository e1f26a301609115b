package main

import (
	"testing"

	"github.com/drydock-rl/drydock/internal/cli"
)

// TestTraceSaysWhatItNeeds wants a place to look in, and only one.
func TestTraceSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	refuse(t, cli.ExitUsage, "--dir, or --collector and --model", "trace", "latest")
	refuse(t, cli.ExitUsage, "--dir, or --collector and --model", "trace", "latest", "--collector", "http://127.0.0.1:1")
	refuse(t, cli.ExitUsage, "expected one of them", "trace", "latest", "--dir", t.TempDir(), "--collector", "http://127.0.0.1:1")
	refuse(t, cli.ExitInput, "none of the 0 traces", "trace", "latest", "--dir", t.TempDir())
}
