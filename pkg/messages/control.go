package messages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/drydock-rl/drydock/pkg/messages/protocol"
)

// Control is the control plane of one model over one connection. It is safe for
// concurrent use. The connection belongs to the caller, who closes it after Close.
type Control struct {
	nc     *nats.Conn
	cfg    Config
	subj   subjects
	log    *slog.Logger
	tracer trace.Tracer
	begun  time.Time // origin of the monotonic clock that the machines see

	denials    denials
	batches    batches
	lossyUntil atomic.Int64 // on the monotonic clock, ns: reads were lost lately
	catalogues catalogueCache
	layouts    cache[knownLayout]
	endpoints  cache[*Endpoint]
	runs       cache[RunRecord] // by number: records are written once
	recorded   cache[time.Time] // by number of the run: when the server stored its record, as this process first saw it
	stored     cache[bool]      // blobs that this process has seen stored, by run and digest
	encoded    encodedLayout    // the one published last
	bad        quarantined

	stop       context.CancelFunc // ends all that runs in the background
	background context.Context
	work       sync.WaitGroup
}

// Open opens the control plane of a model that Init has initialised. It takes over
// nc's asynchronous error handler, and calls the one that was there before.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Control, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	provider := cfg.Tracer
	if provider == nil {
		provider = noop.NewTracerProvider()
	}
	c := &Control{
		nc: nc, cfg: cfg, subj: subjects{cfg.Token}, log: cfg.Logger.With("model", cfg.Model),
		tracer: provider.Tracer("github.com/drydock-rl/drydock/pkg/messages"), begun: time.Now(),
	}
	c.background, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.denials.listen(nc)
	if err := c.ping(ctx); err != nil {
		_ = c.Close() // always nil
		return nil, fmt.Errorf("open model %q: %w", cfg.Model, err)
	}
	return c, nil
}

// ping proves that the stream is there by reading the newest run.
func (c *Control) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Deadline)
	defer cancel()
	res := c.perform(ctx, protocol.Intent{Verb: protocol.LastRun})
	if on, _ := c.nc.ConnectedServerJetStream(); !on && errors.Is(res.Err, nats.ErrNoResponders) {
		return explainJS(nats.ErrNoResponders) // neither this server nor one behind it has JetStream: waiting is vain
	}
	_, _, err := c.lastRun(ctx)
	return err
}

// Close stops what Control runs in the background and waits for it. Leases that are
// still held are left to expire.
func (c *Control) Close() error {
	c.stop()
	c.work.Wait()
	c.batches.close()
	return nil
}

// Model is the full name of the model.
func (c *Control) Model() string { return c.cfg.Model }

// now is the process's monotonic clock.
func (c *Control) now() time.Duration { return time.Since(c.begun) }

// deadline bounds one operation.
func (c *Control) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.Deadline)
}

// knownLayout is a layout and what would cost a walk over its shards to find again.
type knownLayout struct {
	*Layout
	nbytes int64
	ntiles int
}

// cache keeps decoded blobs. It forgets everything when it is full: a refill costs one
// read of what is in use.
type cache[V any] struct {
	mu    sync.Mutex
	known map[string]V
}

// maxCached bounds a cache; it is well above the ranks of two large runs.
const maxCached = 8192

func (c *cache[V]) get(id string) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.known[id]
	return v, ok
}

func (c *cache[V]) put(id string, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCached {
		c.known = make(map[string]V)
	}
	c.known[id] = v
}

// forget empties the cache.
func (c *cache[V]) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
}
