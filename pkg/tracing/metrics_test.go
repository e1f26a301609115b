package tracing

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// scraped returns the samples of a scrape, without comments and scope labels.
func scraped(t *testing.T, use func(*Metrics)) string {
	t.Helper()
	tel, err := Setup(t.Context(), SetupConfig{Service: "test", Getenv: env()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tel.Shutdown(context.Background()) }()
	m, err := NewMetrics(tel.MeterProvider)
	if err != nil {
		t.Fatal(err)
	}
	use(m)
	w := httptest.NewRecorder()
	tel.Prometheus.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", http.NoBody))
	if w.Code != 200 {
		t.Fatalf("scrape answered %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wantSamples(t *testing.T, scrape string, want ...string) {
	t.Helper()
	for _, line := range want {
		if !strings.Contains("\n"+scrape, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			var near []string
			for l := range strings.SplitSeq(scrape, "\n") {
				if strings.HasPrefix(l, name) {
					near = append(near, l)
				}
			}
			t.Errorf("no sample %s; there is\n%s", line, strings.Join(near, "\n"))
		}
	}
}

func TestCycleIsMeasured(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	scrape := scraped(t, func(m *Metrics) {
		o := r.options()
		o.Model, o.Metrics = "q", m
		for _, err := range []error{nil, context.DeadlineExceeded} {
			ctx, c := Start(r.ctx(), o)
			_, sp := c.Stage(ctx, WireTransfer)
			r.advance(1500 * time.Millisecond)
			sp.AddBytes(300)
			sp.End(err)
			c.SetSizes(Sizes{NeededBytes: 200, VerifiedBytes: 150, StagedBytes: 200, SavedBytes: 7})
			outcome := OutcomeApplied
			if err != nil {
				outcome = OutcomeFailed
			}
			c.Finish(outcome, err)
		}
	})
	wantSamples(t, scrape,
		`drydock_stage_duration_seconds_bucket{drydock_model="q",drydock_stage="wire_transfer",drydock_status="ok",le="1"} 0`,
		`drydock_stage_duration_seconds_bucket{drydock_model="q",drydock_stage="wire_transfer",drydock_status="ok",le="2.5"} 1`,
		`drydock_stage_duration_seconds_sum{drydock_model="q",drydock_stage="wire_transfer",drydock_status="error"} 1.5`,
		`drydock_refit_duration_seconds_count{drydock_cold_warm="unknown",drydock_model="q",drydock_outcome="applied"} 1`,
		`drydock_refit_cycles_total{drydock_model="q",drydock_outcome="failed"} 1`,
		`drydock_refit_bytes_total{drydock_bytes_kind="read",drydock_model="q"} 600`,
		`drydock_refit_bytes_total{drydock_bytes_kind="saved",drydock_model="q"} 14`,
		`drydock_refit_amplification_ratio{drydock_model="q"} 1.5`,
		`drydock_refit_verified_ratio{drydock_model="q"} 0.75`,
	)
	if strings.Contains(scrape, `drydock_stage="installation"`) {
		t.Error("a stage that did not happen was measured")
	}
}

// TestFailuresCountOnce has a failure counted by whoever found it, as Stage and Apply do, and the record of the same
// cycle not count it again; a cycle that nobody ended in good order counts by itself.
func TestFailuresCountOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	scrape := scraped(t, func(m *Metrics) {
		o := r.options()
		o.Model, o.Metrics = "q", m
		_, c := Start(r.ctx(), o)
		m.Failure("q", "deadline")
		c.Finish(OutcomeFailed, context.DeadlineExceeded)
		_, c = Start(r.ctx(), o)
		c.Finish(OutcomeAbandoned, nil)
	})
	wantSamples(t, scrape,
		`drydock_failures_total{drydock_model="q",error_type="deadline"} 1`,
		`drydock_failures_total{drydock_model="q",error_type="abandoned"} 1`,
	)
}

// everything has each instrument measure something.
func everything(m *Metrics) {
	m.observe(&Record{Stages: StageList{{Count: 1, Status: StatusOK}}, Drydock: Extension{
		Model: "q", Outcome: OutcomeApplied, Sizes: Sizes{NeededBytes: 1, WireBytes: 1, StagedBytes: 1},
	}})
	gauges(m)
}

func gauges(m *Metrics) {
	m.Newest("q", 1, 9)
	m.Served("q", 1, 7, time.Unix(1_800_000_000, 0))
	m.Leases("q", 2)
	m.Arenas("q", "served", 1, 4096)
	m.Breakers("q", BreakerOpen, 3)
	m.Staging("q", 64)
	m.Plan("q", PlanRebind)
	m.Retry("q", "reset")
	m.Pause("q", 300*time.Microsecond)
	m.Published("q", time.Second, 512, nil)
	m.Published("q", time.Second, 512, errors.New("x"))
}

func TestGauges(t *testing.T) {
	t.Parallel()
	scrape := scraped(t, gauges)
	wantSamples(t, scrape,
		`drydock_version_newest{drydock_model="q"} 9`,
		`drydock_version_served{drydock_model="q"} 7`,
		`drydock_version_lag{drydock_model="q"} 2`,
		`drydock_version_served_time_seconds{drydock_model="q"} 1.8e+09`,
		`drydock_leases{drydock_model="q"} 2`,
		`drydock_arenas{drydock_arena_state="served",drydock_model="q"} 1`,
		`drydock_arena_size_bytes{drydock_arena_state="served",drydock_model="q"} 4096`,
		`drydock_breaker_sources{drydock_breaker_state="open",drydock_model="q"} 3`,
		`drydock_staging_usage_bytes{drydock_model="q"} 64`,
		`drydock_plan_requests_total{drydock_model="q",drydock_plan_result="rebind"} 1`,
		`drydock_read_retries_total{drydock_model="q",drydock_retry_reason="reset"} 1`,
		`drydock_apply_pause_seconds_bucket{drydock_model="q",le="0.0005"} 1`,
		`drydock_publish_duration_seconds_count{drydock_model="q",drydock_status="ok"} 1`,
		`drydock_publish_bytes_total{drydock_model="q"} 512`,
		`drydock_failures_total{drydock_model="q",error_type="*errors.errorString"} 1`,
	)
}

func TestLag(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		v    versions
		want int64
	}{
		{versions{}, 0},
		{versions{1, 5, 1, 5}, 0},
		{versions{1, 5, 1, 8}, 3},
		{versions{1, 8, 1, 5}, 0}, // announced late
		{versions{1, 800, 2, 0}, 1},
		{versions{1, 800, 2, 4}, 4},
		{versions{2, 0, 1, 900}, 0},
		{versions{0, 0, 1, 1 << 63}, 1<<63 - 1},
	} {
		if got := test.v.lag(); got != test.want {
			t.Errorf("%+v: lag %d, want %d", test.v, got, test.want)
		}
	}
}

// TestFailuresThatMayComeAreShownAsZero: an increase of a counter that nobody has seen before is none to Prometheus.
func TestFailuresThatMayComeAreShownAsZero(t *testing.T) {
	t.Parallel()
	scrape := scraped(t, func(m *Metrics) {
		m.Expect("q", "corrupt-tile", "source-lost")
		m.Failure("q", "corrupt-tile")
	})
	wantSamples(t, scrape,
		`drydock_failures_total{drydock_model="q",error_type="corrupt-tile"} 1`,
		`drydock_failures_total{drydock_model="q",error_type="source-lost"} 0`,
	)
}

func TestNilMetrics(t *testing.T) { // alone: it counts allocations
	var m *Metrics
	if n := testing.AllocsPerRun(10, func() {
		m.observe(nil)
		m.Plan("q", PlanHit)
		m.Retry("q", "reset")
		m.Failure("q", "x")
		m.Expect("q", "x", "y")
		m.Pause("q", 1)
		m.Published("q", 1, 1, nil)
		m.Served("q", 1, 1, time.Time{})
		m.Newest("q", 1, 1)
		m.Leases("q", 1)
		m.Arenas("q", "served", 1, 1)
		m.Breakers("q", BreakerOpen, 1)
		m.Staging("q", 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserveCycle(b *testing.B) {
	tel, err := Setup(b.Context(), SetupConfig{Service: "test", Getenv: env()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tel.Shutdown(context.Background()) }()
	m, err := NewMetrics(tel.MeterProvider)
	if err != nil {
		b.Fatal(err)
	}
	r := &Record{}
	for i := range r.Stages {
		r.Stages[i].Count = 1
	}
	b.ReportAllocs()
	for b.Loop() {
		m.observe(r)
	}
}
