package messages

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Config says which model a Control serves, and how. The zero value of every field
// but Model is the default.
type Config struct {
	Model     string // full name, free text; the subject token is derived from it unless Token is set
	Token     string // subject token, [A-Za-z0-9_-]{1,64}
	Logger    *slog.Logger
	Tracer    trace.TracerProvider // nil: no messaging spans
	Replicas  int                  // 1 or 3; 1
	Memory    bool                 // keep streams in memory, for demo and tests
	MaxBytes  int64                // of the stream; 8 GiB
	MaxAge    time.Duration        // backstop for tables nobody commits; 7 days
	LeaseTTL  time.Duration        // 20 s
	StatusTTL time.Duration        // 60 s
	Poll      time.Duration        // re-read of the newest commit; 3 s
	OpTimeout time.Duration        // one attempt against the server; 1 s
	Deadline  time.Duration        // all attempts of one operation; 30 s
}
