package tracesink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Config describes a sink. The zero value is valid.
type Config struct {
	GRPCAddr        string       // default 127.0.0.1:0
	HTTPAddr        string       // default 127.0.0.1:0
	MaxTraces       int          // kept at once; default 1,000
	MaxSpans        int          // kept at once, of all traces; default 500,000
	MaxRequestBytes int          // of one request, decompressed; default 16 MiB
	Forward         string       // OTLP address that gets each request too: http(s)://host:port for HTTP, grpc(s)://host:port for gRPC; default none
	Logger          *slog.Logger // hears of what can't be forwarded, once; default: none
}

func (c Config) withDefaults() Config {
	const loopback = "127.0.0.1:0"
	if c.GRPCAddr == "" {
		c.GRPCAddr = loopback
	}
	if c.HTTPAddr == "" {
		c.HTTPAddr = loopback
	}
	if c.MaxTraces == 0 {
		c.MaxTraces = 1000
	}
	if c.MaxSpans == 0 {
		c.MaxSpans = 500_000
	}
	if c.MaxRequestBytes == 0 {
		c.MaxRequestBytes = 16 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *Config) validate() error {
	if c.MaxTraces < 0 || c.MaxSpans < 0 || c.MaxRequestBytes < 0 {
		return fmt.Errorf("check trace sink configuration: limits are %d traces, %d spans, %d bytes; expected 0 (the default) or more",
			c.MaxTraces, c.MaxSpans, c.MaxRequestBytes)
	}
	return nil
}

// Sink is a running receiver. It is safe for concurrent use.
type Sink struct {
	c       Config
	store   *store
	forward *forwarder // nil: nowhere
	grpc    *grpc.Server
	http    *http.Server
	grpcLis net.Listener
	httpLis net.Listener
	serving sync.WaitGroup
	once    sync.Once
	closed  error
}

// Start listens and serves until Close.
func Start(c Config) (*Sink, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	s := &Sink{c: c, store: newStore(c.MaxTraces, c.MaxSpans)}
	var err error
	if s.forward, err = newForwarder(c.Forward, c.Logger); err != nil {
		return nil, err
	}
	if s.grpcLis, err = net.Listen("tcp", c.GRPCAddr); err == nil {
		s.httpLis, err = net.Listen("tcp", c.HTTPAddr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for spans: %w", err), s.release())
	}
	s.grpc = s.newGRPC()
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second}
	s.serving.Go(func() { _ = s.grpc.Serve(s.grpcLis) }) // ends with Close, and its error is Close's
	s.serving.Go(func() { _ = s.http.Serve(s.httpLis) })
	return s, nil
}

// release closes what Start opened before it failed.
func (s *Sink) release() error {
	if s.grpcLis != nil {
		_ = s.grpcLis.Close()
	}
	return s.forward.close()
}

// GRPCURL is the OTLP endpoint for protocol grpc.
func (s *Sink) GRPCURL() string { return "http://" + s.grpcLis.Addr().String() }

// HTTPURL is the OTLP endpoint for protocol http/protobuf, and the address of [Fetch].
func (s *Sink) HTTPURL() string { return "http://" + s.httpLis.Addr().String() }

// Environ returns the OTEL_ variables, as NAME=value, that send a process's
// spans here by gRPC, with little delay.
func (s *Sink) Environ() []string {
	return []string{
		"OTEL_TRACES_EXPORTER=otlp",
		"OTEL_METRICS_EXPORTER=none",
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + s.GRPCURL(),
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_BSP_SCHEDULE_DELAY=200",
	}
}

// Trace returns the spans of one trace that are here now, by start time.
func (s *Sink) Trace(id TraceID) Trace { return s.store.trace(id) }

// Traces lists the traces, the oldest first.
func (s *Sink) Traces() []Summary { return s.store.list() }

// Dropped is the number of spans that limits have cost.
func (s *Sink) Dropped() int { return s.store.droppedSpans() }

// Wait returns the trace as soon as done says that it is complete. When ctx
// ends first, it returns what is there with an error that says how much that is.
func (s *Sink) Wait(ctx context.Context, id TraceID, done func(Trace) bool) (Trace, error) {
	for {
		changed := s.store.changes()
		t := s.Trace(id)
		if done(t) {
			return t, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return t, fmt.Errorf("wait for trace %s: %d spans of it are here and they are not enough: %w", id, len(t.Spans), ctx.Err())
		}
	}
}

// Close stops listening, waits for requests in flight and for what is still to
// be forwarded, both for a few seconds at most. Spans stay readable.
func (s *Sink) Close() error {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		stop := context.AfterFunc(ctx, s.grpc.Stop)
		defer stop()
		s.grpc.GracefulStop()
		s.closed = errors.Join(s.http.Shutdown(ctx), s.forward.close())
		s.serving.Wait()
	})
	return s.closed
}
