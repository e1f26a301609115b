package demo

import (
	"strings"
	"testing"

	"github.com/drydock-rl/drydock/pkg/tracing"
)

// TestRecordsAreTold: what was read and verified, and that nothing had to be, as after a rollback.
func TestRecordsAreTold(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	v := newVoice(&b)
	read := tracing.Record{Version: 3, Bytes: 2e6}
	read.Drydock.Outcome, read.Drydock.VerifiedBytes, read.Drydock.StagedBytes = tracing.OutcomeApplied, 1e6, 2e6
	v.record(0, &read)
	back := tracing.Record{Version: 2}
	back.Drydock.Outcome = tracing.OutcomeApplied
	v.record(1, &back)
	failed := tracing.Record{Version: 4}
	failed.Drydock.Outcome, failed.Drydock.Error = tracing.OutcomeFailed, "no luck"
	v.record(0, &failed)
	for _, want := range []string{
		"version 3   applied by receiver-0: 2.0 MB in 0.0 ms, 50.0 % verified, pause 0.000 ms",
		"version 2   applied by receiver-1: nothing had to be read, 0.0 ms, pause 0.000 ms",
		"version 4   receiver-0: failed: no luck",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("not said: %q, in %q", want, b.String())
		}
	}
}
