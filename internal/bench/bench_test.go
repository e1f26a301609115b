package bench

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEverySectionIsMeasured(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Run(t.Context(), &out, Options{Nbytes: 1 << 20, Rounds: 1, Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"18867 tensors", "decode 16 layouts", "memcpy", "raw loopback", "of memcpy", "of copy loop", "wire_transfer", "end to end"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

// TestRefitsAreMeasuredByStage has a table of every stage, both transports, with and without digests.
func TestRefitsAreMeasuredByStage(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Refit(t.Context(), &out, RefitOptions{Nbytes: 1 << 20, Rounds: 2, Turns: 1, Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"of 2, ms", "local, no digests", "tcp, no digests", "receive_sync", "rollout_readiness", "end to end", "processor time", "digests' share, tcp"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}
