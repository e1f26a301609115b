package promtest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/adminhttp"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const model = "Qwen/Qwen3-30B-A3B"

// program is a Drydock program as a scraper sees it: the metrics of a receiver
// and of a publisher at once.
type program struct {
	tel     *tracing.Telemetry
	metrics *tracing.Metrics
	admin   *adminhttp.Server
	version uint64
}

func startProgram(t *testing.T) *program {
	t.Helper()
	off := func(string) string { return "" }
	tel, err := tracing.Setup(t.Context(), tracing.SetupConfig{Service: "drydock-receiver", Instance: "0", Getenv: off})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tel.Shutdown(context.Background()) })
	p := &program{tel: tel}
	if p.metrics, err = tracing.NewMetrics(tel.MeterProvider); err != nil {
		t.Fatal(err)
	}
	if p.admin, err = adminhttp.Start(adminhttp.Config{Metrics: tel.Prometheus}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.admin.Close(context.Background()) })
	p.refit(t.Context())
	return p
}

// refit has everything happen once that a metric counts.
func (p *program) refit(ctx context.Context) {
	p.version++
	m := p.metrics
	m.Newest(model, 1, p.version)
	m.Published(model, time.Second, 1<<30, nil)
	for _, err := range []error{errors.New("no answer"), nil} {
		cctx, c := tracing.Start(ctx, tracing.CycleOptions{Model: model, Run: 1, Version: p.version, Metrics: m, Getenv: func(string) string { return "" }})
		for _, s := range tracing.Stages() {
			_, sp := c.Stage(cctx, s)
			sp.AddBytes(1 << 20)
			sp.End(err)
		}
		c.SetSizes(tracing.Sizes{NeededBytes: 1 << 20, WireBytes: 1 << 20, VerifiedBytes: 1 << 20, StagedBytes: 1 << 20, SavedBytes: 1 << 10, InstalledBytes: 1 << 20})
		outcome := tracing.OutcomeApplied
		if err != nil {
			outcome = tracing.OutcomeFailed
			m.Failure(model, "source-lost")
		}
		c.Finish(outcome, err)
	}
	m.Pause(model, 400*time.Microsecond)
	m.Served(model, 1, p.version, time.Now())
	m.Leases(model, 1)
	for _, state := range []string{"free", "staging", "serving", "retained", "quarantined"} { // those of package arena
		m.Arenas(model, state, 1, 1<<30)
	}
	m.Staging(model, 64<<20)
	m.Retry(model, "reset")
	for _, r := range []tracing.PlanResult{tracing.PlanMiss, tracing.PlanRebind, tracing.PlanHit} {
		m.Plan(model, r)
	}
	for s, n := range map[tracing.BreakerState]int{tracing.BreakerClosed: 15, tracing.BreakerHalfOpen: 0, tracing.BreakerOpen: 1} {
		m.Breakers(model, s, n)
	}
}

func (p *program) scrape(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	p.tel.Prometheus.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape answered %d", w.Code)
	}
	return w.Body.String()
}
