package tracing

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// The variables that govern records, read once for each cycle.
const (
	EnvTiming = "MX_REFIT_TIMING"        // "0": no cycles at all
	EnvStdout = "MX_REFIT_TIMING_STDOUT" // neither empty nor "0": the line goes to stdout too
)

// DefaultMaxDetails is how many detail spans a stage span shows one by one.
const DefaultMaxDetails = 32

// Parallel places a rank in a parallel group. Size 0 means unknown or not
// used: the record then shows null for both.
type Parallel struct {
	Rank int // in [0, Size)
	Size int
}

// CycleOptions describe one cycle. The zero value is valid: a cycle of backend
// "drydock", rank 0, version 0, that is measured and reported nowhere.
type CycleOptions struct {
	Backend string // what does the refit; default "drydock"
	Model   string // full name
	Run     uint64
	Version uint64
	Rank    int      // destination rank; negative: the cycle is of several ranks, shown as null
	TP      Parallel // tensor parallel
	EP      Parallel // expert parallel

	Tracer     trace.Tracer         // default: no spans
	Links      []trace.Link         // to other traces: the cycle of the version applied before
	Attributes []attribute.KeyValue // of the cycle's span only
	MaxDetails int                  // detail spans shown for each stage span; default DefaultMaxDetails
	Metrics    *Metrics             // default: none

	Logger *slog.Logger             // gets the line at level info, and misuse at level error; default: none
	Lines  io.Writer                // gets the line raw, instead of Logger; default: none
	Stdout io.Writer                // gets the line when EnvStdout asks for it; default os.Stdout
	Getenv func(name string) string // default os.Getenv
	Now    func() time.Time         // default time.Now
}

func (o CycleOptions) withDefaults() CycleOptions {
	if o.Backend == "" {
		o.Backend = "drydock"
	}
	if o.Tracer == nil {
		o.Tracer = noop.Tracer{}
	}
	if o.MaxDetails == 0 {
		o.MaxDetails = DefaultMaxDetails
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// validate names what a record could not express.
func (o *CycleOptions) validate() error {
	for _, g := range []struct {
		name string
		p    Parallel
	}{{"tp", o.TP}, {"ep", o.EP}} {
		if g.p.Size < 0 || g.p.Size > 0 && (g.p.Rank < 0 || g.p.Rank >= g.p.Size) {
			return fmt.Errorf("check cycle options: %s rank %d is not in [0, %d)", g.name, g.p.Rank, g.p.Size)
		}
	}
	if o.MaxDetails < 0 {
		return fmt.Errorf("check cycle options: MaxDetails is %d, expected 0 (the default) or more", o.MaxDetails)
	}
	return nil
}

func (o *CycleOptions) spanAttributes() []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		AttrModel.String(o.Model),
		AttrBackend.String(o.Backend),
		Uint64(AttrRun, o.Run),
		Uint64(AttrVersion, o.Version),
	}
	if o.Rank >= 0 {
		attrs = append(attrs, AttrRank.Int(o.Rank))
	}
	if o.TP.Size > 0 {
		attrs = append(attrs, AttrTPRank.Int(o.TP.Rank), AttrTPSize.Int(o.TP.Size))
	}
	if o.EP.Size > 0 {
		attrs = append(attrs, AttrEPRank.Int(o.EP.Rank), AttrEPSize.Int(o.EP.Size))
	}
	return append(attrs, o.Attributes...)
}

// Uint64 is an integer attribute; OpenTelemetry has no unsigned one, so a value
// beyond its range becomes the largest that there is.
func Uint64(k attribute.Key, v uint64) attribute.KeyValue {
	return k.Int64(clamp(v))
}

func clamp(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
