package tracing

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// versionSampler lets the sampler that the operator chose decide about a
// participant that joined a version by computing its context as about the root
// itself: nobody has decided for it yet, and the trace id is all that counts.
type versionSampler struct{ sdktrace.Sampler }

func (s versionSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	if root, ok := p.ParentContext.Value(rootKey{}).(trace.SpanID); ok && parent.IsRemote() && parent.SpanID() == root {
		p.ParentContext = trace.ContextWithSpanContext(p.ParentContext, trace.SpanContext{})
	}
	return s.Sampler.ShouldSample(p)
}

// samplerFrom reads OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG. Unlike the
// SDK it refuses what it does not know, before anything was traced wrongly.
func samplerFrom(getenv func(string) string) (sdktrace.Sampler, error) {
	name := strings.ToLower(strings.TrimSpace(lookup(getenv, "OTEL_TRACES_SAMPLER")))
	ratio, err := ratioFrom(lookup(getenv, "OTEL_TRACES_SAMPLER_ARG"))
	switch name {
	case "", "parentbased_always_on":
		return sdktrace.ParentBased(sdktrace.AlwaysSample()), nil
	case "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return sdktrace.NeverSample(), nil
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample()), nil
	case "traceidratio":
		return sdktrace.TraceIDRatioBased(ratio), err
	case "parentbased_traceidratio":
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio)), err
	}
	return nil, fmt.Errorf("read OTEL_TRACES_SAMPLER: %q is not a sampler (expected always_on, always_off, traceidratio, or one of these with parentbased_ before it)", name)
}

func ratioFrom(arg string) (float64, error) {
	arg = strings.TrimSpace(arg)
	if arg == "" {
		return 1, nil
	}
	ratio, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return 1, fmt.Errorf("read OTEL_TRACES_SAMPLER_ARG: %q is not a number in [0, 1]", arg)
	}
	return ratio, nil
}

// Sampled says whether ctx's current span is recorded, for work that is worth
// doing only then.
func Sampled(ctx context.Context) bool {
	return trace.SpanFromContext(ctx).IsRecording()
}
