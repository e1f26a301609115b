package tracesink

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// forwardQueue bounds the requests that wait for a slow collector.
const forwardQueue = 256

// forwarder hands requests on from one goroutine. What does not fit in its
// queue, or is refused, is dropped: it said so once. A nil forwarder does nothing.
type forwarder struct {
	log    *slog.Logger
	target target
	queue  chan request
	done   chan struct{}
	ctx    context.Context
	stop   context.CancelFunc
	mu     sync.Mutex
	ended  bool
	said   sync.Once
}

type request struct {
	kind signal
	msg  proto.Message
}

// target sends one request.
type target interface {
	send(ctx context.Context, r request) error
	close() error
}

func newForwarder(address string, log *slog.Logger) (*forwarder, error) {
	if address == "" {
		return nil, nil
	}
	t, err := newTarget(address)
	if err != nil {
		return nil, err
	}
	f := &forwarder{log: log, target: t, queue: make(chan request, forwardQueue), done: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(context.Background())
	go f.run()
	return f, nil
}

func newTarget(address string) (target, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("read OTLP address %q: expected http://host:port or grpc://host:port", address)
	}
	switch u.Scheme {
	case "http", "https":
		return &httpTarget{base: strings.TrimSuffix(strings.TrimSuffix(address, "/"), "/v1/traces"), client: &http.Client{Timeout: 5 * time.Second}}, nil
	case "grpc", "grpcs":
		creds := insecure.NewCredentials()
		if u.Scheme == "grpcs" {
			creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
		}
		conn, err := grpc.NewClient(u.Host, grpc.WithTransportCredentials(creds))
		if err != nil {
			return nil, fmt.Errorf("read OTLP address %q: %w", address, err)
		}
		return grpcTarget{conn}, nil
	}
	return nil, fmt.Errorf("read OTLP address %q: scheme %q is not understood, expected http, https, grpc or grpcs", address, u.Scheme)
}

func (f *forwarder) send(kind signal, msg proto.Message) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	select {
	case f.queue <- request{kind, msg}:
	default:
		f.lost(fmt.Errorf("queue of %d requests is full", forwardQueue))
	}
}

func (f *forwarder) run() {
	defer close(f.done)
	for r := range f.queue {
		if err := f.target.send(f.ctx, r); err != nil {
			f.lost(err)
		}
	}
}

func (f *forwarder) lost(err error) {
	f.said.Do(func() { f.log.Warn("telemetry not forwarded; this is said once", "error", err) })
}

// close sends what is queued, for three seconds at most.
func (f *forwarder) close() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	if !f.ended {
		f.ended = true
		close(f.queue)
	}
	f.mu.Unlock()
	timer := time.AfterFunc(3*time.Second, f.stop)
	defer timer.Stop()
	<-f.done
	f.stop()
	return f.target.close()
}

type httpTarget struct {
	base   string
	client *http.Client
}

func (t *httpTarget) send(ctx context.Context, r request) error {
	body, err := proto.Marshal(r.msg)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.base+"/v1/"+string(r.kind), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", protobufType)
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection is used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("forward %s to %s: %s", r.kind, t.base, resp.Status)
	}
	return nil
}

func (t *httpTarget) close() error {
	t.client.CloseIdleConnections()
	return nil
}

type grpcTarget struct{ conn *grpc.ClientConn }

// send calls the Export method of the signal's service; the answer is empty but
// for a partial success, which nobody here could act on.
func (t grpcTarget) send(ctx context.Context, r request) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	service := map[signal]string{traces: "trace.v1.TraceService", metrics: "metrics.v1.MetricsService", logs: "logs.v1.LogsService"}[r.kind]
	return t.conn.Invoke(ctx, "/opentelemetry.proto.collector."+service+"/Export", r.msg, &emptypb.Empty{})
}

func (t grpcTarget) close() error { return t.conn.Close() }
