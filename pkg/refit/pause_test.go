package refit

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/tracing"
)

// pauses refits a receiver to some versions and gives what its metrics tell of the pauses: the sum in seconds, and how many took at
// most a millisecond.
func pauses(t *testing.T, i Installer, versions uint64) (sum, short float64) {
	t.Helper()
	tel, err := tracing.Setup(t.Context(), tracing.SetupConfig{Service: "test", Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	metrics, err := tracing.NewMetrics(tel.MeterProvider)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, worldOptions{ranks: 1})
	r := w.receiver(func(c *ReceiverConfig) { c.Installer, c.Metrics = i, metrics })
	for v := range versions {
		w.refit(r, w.publish(v+1))
	}
	answer := httptest.NewRecorder()
	tel.Prometheus.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(answer.Body.String()) {
		name, number, _ := strings.Cut(line, "} ")
		to := &sum
		switch {
		case strings.HasPrefix(name, "drydock_apply_pause_seconds_bucket{") && strings.HasSuffix(name, `le="0.001"`):
			to = &short
		case !strings.HasPrefix(name, "drydock_apply_pause_seconds_sum{"):
			continue
		}
		if _, err := fmt.Sscan(number, to); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return sum, short
}

// TestThePauseIsTheInstallersOwnWhereItTells has an installer whose call takes long and whose engine stands still for less;
// one that tells nothing, whose call is all that is known; and none, where the pause is a flip, below a millisecond.
func TestThePauseIsTheInstallersOwnWhereItTells(t *testing.T) {
	t.Parallel()
	const call, own = 50 * time.Millisecond, 7 * time.Millisecond
	for name, c := range map[string]struct {
		report      Report
		least, most time.Duration
	}{
		"told":     {Report{Pause: own}, own, own},
		"not told": {Report{}, call, patience},
	} {
		got, _ := pauses(t, InstallerFunc(func(context.Context, Installation) (Report, error) { pass(t, call); return c.report, nil }), 1)
		if d := time.Duration(got * 1e9).Round(time.Microsecond); d < c.least || d > c.most {
			t.Errorf("%s: a pause of %v, expected %v to %v", name, d, c.least, c.most)
		}
	}
	const versions = 20 // a busy machine takes the core away in some of them
	if _, short := pauses(t, Shm, versions); short < versions/2 {
		t.Errorf("only %v of %d flips took less than a millisecond", short, versions)
	}
}
