package tracing

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// PlanResult says where a plan came from.
type PlanResult string

// The results of asking for a plan.
const (
	PlanMiss   PlanResult = "miss"   // made anew
	PlanRebind PlanResult = "rebind" // geometry known, addresses new
	PlanHit    PlanResult = "hit"    // found as it is
)

// BreakerState says whether a source is read.
type BreakerState string

// The states of the breaker of a source.
const (
	BreakerClosed   BreakerState = "closed"    // read
	BreakerHalfOpen BreakerState = "half_open" // probed
	BreakerOpen     BreakerState = "open"      // avoided
)

// Keys of metric attributes. Their values are few: no name of a tensor, rank or
// version is one.
const (
	attrStatus  = attribute.Key("drydock.status")
	attrKind    = attribute.Key("drydock.bytes.kind")
	attrPlan    = attribute.Key("drydock.plan.result")
	attrReason  = attribute.Key("drydock.retry.reason")
	attrBreaker = attribute.Key("drydock.breaker.state")
	attrArena   = attribute.Key("drydock.arena.state")
	attrCold    = attribute.Key("drydock.cold_warm")
)

// Buckets of durations in seconds: flipping a name takes microseconds, moving a
// terabyte minutes.
var durationBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500}

// Metrics are the instruments of one process. A nil Metrics measures nothing.
// In Prometheus dots become underscores and units become suffixes:
// drydock.stage.duration is drydock_stage_duration_seconds.
type Metrics struct {
	stage, cycle, pause, publish         metric.Float64Histogram
	bytes, plans, retries, failures      metric.Int64Counter
	cycles, published                    metric.Int64Counter
	amplification, verified              metric.Float64Gauge
	served, newest, lag, applied, leases metric.Int64Gauge
	arenas, arenaBytes, breakers         metric.Int64Gauge
	staging                              metric.Int64Gauge

	mu     sync.Mutex
	models map[string]*versions
}

// versions are the last known versions of one model.
type versions struct{ servedRun, served, newestRun, newest uint64 }

// NewMetrics makes the instruments. It fails only where mp refuses a name.
func NewMetrics(mp metric.MeterProvider) (*Metrics, error) {
	b := builder{m: mp.Meter(Scope)}
	m := &Metrics{
		stage:         b.seconds("drydock.stage.duration", "Wall time of one stage in one refit cycle."),
		cycle:         b.seconds("drydock.refit.duration", "Time from the begin of staging to the end of the cycle, the caller's pause included."),
		pause:         b.seconds("drydock.apply.pause", "Time during which the engine answered nothing because it took new weights."),
		publish:       b.seconds("drydock.publish.duration", "Time to publish one version on one rank."),
		bytes:         b.counter("drydock.refit.bytes", "By", "Bytes of refits, by kind: needed, read, verified, saved, staged, installed."),
		cycles:        b.counter("drydock.refit.cycles", "{cycle}", "Refit cycles that ended, by outcome."),
		plans:         b.counter("drydock.plan.requests", "{plan}", "Plans asked for: made anew (miss), rebound to new addresses, or found (hit)."),
		retries:       b.counter("drydock.read.retries", "{read}", "Reads that were tried again on another source, by reason."),
		failures:      b.counter("drydock.failures", "{failure}", "Failed cycles and publications, by class."),
		published:     b.counter("drydock.publish.bytes", "By", "Bytes of weights announced by this rank."),
		amplification: b.ratio("drydock.refit.amplification", "Bytes read over bytes needed, in the last cycle."),
		verified:      b.ratio("drydock.refit.verified", "Bytes verified over bytes staged, in the last cycle."),
		served:        b.gauge("drydock.version.served", "{version}", "Version that this process serves (receiver) or holds (publisher)."),
		newest:        b.gauge("drydock.version.newest", "{version}", "Newest committed version that this process knows of."),
		lag:           b.gauge("drydock.version.lag", "{version}", "Committed versions since the one that is served."),
		applied:       b.gauge("drydock.version.served.time", "s", "Unix time at which the served version came into service."),
		leases:        b.gauge("drydock.leases", "{lease}", "Leases held (receiver), or standing on this rank's versions (publisher)."),
		arenas:        b.gauge("drydock.arenas", "{arena}", "Arenas, by state."),
		arenaBytes:    b.gauge("drydock.arena.size", "By", "Bytes of arenas, by state."),
		breakers:      b.gauge("drydock.breaker.sources", "{source}", "Sources, by the state of their breaker."),
		staging:       b.gauge("drydock.staging.usage", "By", "Bytes of staging slots in use."),
		models:        map[string]*versions{},
	}
	return m, errors.Join(b.errs...)
}

// builder makes instruments and collects errors.
type builder struct {
	m    metric.Meter
	errs []error
}

func (b *builder) seconds(name, what string) metric.Float64Histogram {
	h, err := b.m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(durationBuckets...))
	b.errs = append(b.errs, err)
	return h
}

func (b *builder) counter(name, unit, what string) metric.Int64Counter {
	c, err := b.m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
	b.errs = append(b.errs, err)
	return c
}

func (b *builder) gauge(name, unit, what string) metric.Int64Gauge {
	g, err := b.m.Int64Gauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	b.errs = append(b.errs, err)
	return g
}

func (b *builder) ratio(name, what string) metric.Float64Gauge {
	g, err := b.m.Float64Gauge(name, metric.WithUnit("1"), metric.WithDescription(what))
	b.errs = append(b.errs, err)
	return g
}

// with is shorthand for the attributes of one measurement.
func with(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}

// observe takes the numbers out of a finished record.
func (m *Metrics) observe(r *Record) {
	if m == nil {
		return
	}
	ctx := context.Background()
	model := AttrModel.String(r.Drydock.Model)
	for i, st := range r.Stages {
		if st.Count > 0 {
			m.stage.Record(ctx, seconds(st.DurationMs), with(model, AttrStage.String(stageNames[i]), attrStatus.String(string(st.Status))))
		}
	}
	m.cycle.Record(ctx, seconds(r.E2EMs), with(model, AttrOutcome.String(string(r.Drydock.Outcome)), attrCold.String(r.ColdWarm)))
	m.cycles.Add(ctx, 1, with(model, AttrOutcome.String(string(r.Drydock.Outcome))))
	m.observeSizes(ctx, model, r.Drydock.Sizes)
	if r.Drydock.Outcome == OutcomeAbandoned { // whoever fails a cycle in good order counts its failure, with or without a cycle
		m.Failure(r.Drydock.Model, r.Drydock.ErrorType)
	}
}

func (m *Metrics) observeSizes(ctx context.Context, model attribute.KeyValue, s Sizes) {
	for _, b := range []struct {
		kind   string
		nbytes int64
	}{
		{"needed", s.NeededBytes},
		{"read", s.WireBytes},
		{"verified", s.VerifiedBytes},
		{"saved", s.SavedBytes},
		{"staged", s.StagedBytes},
		{"installed", s.InstalledBytes},
	} {
		m.bytes.Add(ctx, b.nbytes, with(model, attrKind.String(b.kind)))
	}
	if s.NeededBytes > 0 {
		m.amplification.Record(ctx, float64(s.WireBytes)/float64(s.NeededBytes), with(model))
	}
	if s.StagedBytes > 0 {
		m.verified.Record(ctx, float64(s.VerifiedBytes)/float64(s.StagedBytes), with(model))
	}
}

func seconds(ms Millis) float64 { return float64(ms) / 1000 }

// Plan counts a plan that was asked for.
func (m *Metrics) Plan(model string, r PlanResult) {
	if m != nil {
		m.plans.Add(context.Background(), 1, with(AttrModel.String(model), attrPlan.String(string(r))))
	}
}

// Retry counts a read that was tried again; reason is a short word.
func (m *Metrics) Retry(model, reason string) {
	if m != nil {
		m.retries.Add(context.Background(), 1, with(AttrModel.String(model), attrReason.String(reason)))
	}
}

// Failure counts a failure; class is a short word. It is called by whoever
// finds out, once, so that failures count also where cycles are off or an outer
// cycle hears of them; only a cycle that was abandoned counts by itself.
func (m *Metrics) Failure(model, class string) {
	if m != nil {
		m.failures.Add(context.Background(), 1, with(AttrModel.String(model), AttrErrorType.String(class)))
	}
}

// Expect shows failures of some classes as zero. Prometheus tells an increase only of what it has seen before: of a series that
// begins with its first failure, no alert would ever say so.
func (m *Metrics) Expect(model string, classes ...string) {
	if m == nil {
		return
	}
	for _, class := range classes {
		m.failures.Add(context.Background(), 0, with(AttrModel.String(model), AttrErrorType.String(class)))
	}
}

// Pause measures how long an engine stood still to take a version.
func (m *Metrics) Pause(model string, d time.Duration) {
	if m != nil {
		m.pause.Record(context.Background(), d.Seconds(), with(AttrModel.String(model)))
	}
}

// Published measures the publication of one version by one rank. An error
// counts as a failure of its class too.
func (m *Metrics) Published(model string, d time.Duration, nbytes int64, err error) {
	if m == nil {
		return
	}
	status := StatusOK
	if err != nil {
		status = StatusError
		m.Failure(model, errorType(err))
	} else {
		m.published.Add(context.Background(), nbytes, with(AttrModel.String(model)))
	}
	m.publish.Record(context.Background(), d.Seconds(), with(AttrModel.String(model), attrStatus.String(string(status))))
}

// Served says which version is in service since now.
func (m *Metrics) Served(model string, run, version uint64, now time.Time) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.versions(model)
	v.servedRun, v.served = run, version
	ctx, at := context.Background(), with(AttrModel.String(model))
	m.served.Record(ctx, clamp(version), at)
	m.applied.Record(ctx, now.Unix(), at)
	m.lag.Record(ctx, v.lag(), at)
}

// Newest says which version is the newest committed one.
func (m *Metrics) Newest(model string, run, version uint64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.versions(model)
	v.newestRun, v.newest = run, version
	at := with(AttrModel.String(model))
	m.newest.Record(context.Background(), clamp(version), at)
	m.lag.Record(context.Background(), v.lag(), at)
}

func (m *Metrics) versions(model string) *versions {
	v := m.models[model]
	if v == nil {
		v = &versions{}
		m.models[model] = v
	}
	return v
}

// lag is how many versions the served one is behind. Behind a whole run it is
// at least 1: how many versions the older run still made is not known.
func (v *versions) lag() int64 {
	switch {
	case v.newestRun < v.servedRun, v.newestRun == v.servedRun && v.newest <= v.served:
		return 0
	case v.newestRun == v.servedRun:
		return clamp(v.newest - v.served)
	}
	return max(1, clamp(v.newest))
}

// Leases says how many leases are held, or stand.
func (m *Metrics) Leases(model string, n int) {
	if m != nil {
		m.leases.Record(context.Background(), int64(n), with(AttrModel.String(model)))
	}
}

// Arenas says how many arenas are in a state (a short word), and their size.
func (m *Metrics) Arenas(model, state string, n int, nbytes int64) {
	if m == nil {
		return
	}
	at := with(AttrModel.String(model), attrArena.String(state))
	m.arenas.Record(context.Background(), int64(n), at)
	m.arenaBytes.Record(context.Background(), nbytes, at)
}

// Breakers says how many sources are in a state.
func (m *Metrics) Breakers(model string, s BreakerState, n int) {
	if m != nil {
		m.breakers.Record(context.Background(), int64(n), with(AttrModel.String(model), attrBreaker.String(string(s))))
	}
}

// Staging says how many bytes of staging slots are in use.
func (m *Metrics) Staging(model string, nbytes int64) {
	if m != nil {
		m.staging.Record(context.Background(), nbytes, with(AttrModel.String(model)))
	}
}
