package jaeger

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds each wait for Jaeger.
const deadline = 60 * time.Second

// server is a running Jaeger.
type server struct {
	otlp, query string // addresses
	client      *http.Client
}

// jaegerConfig keeps traces in memory and listens where it is told, and nowhere
// else. It is YAML, of which JSON is a part.
const jaegerConfig = `{
  "service": {
    "extensions": ["jaeger_storage", "jaeger_query"],
    "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
    "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}}
  },
  "extensions": {
    "jaeger_query": {"storage": {"traces": "kept"}, "http": {"endpoint": %q}, "grpc": {"endpoint": %q}},
    "jaeger_storage": {"backends": {"kept": {"memory": {"max_traces": 1000}}}}
  },
  "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": %q}}}},
  "exporters": {"jaeger_storage_exporter": {"trace_storage": "kept"}}
}`

func startJaeger(t *testing.T) *server {
	t.Helper()
	bin := os.Getenv("DRYDOCK_JAEGER")
	if bin == "" {
		t.Skip("DRYDOCK_JAEGER names no jaeger program: see scripts/test-jaeger.sh")
	}
	s := &server{
		otlp: freeAddr(t), query: freeAddr(t),
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second},
	}
	file := filepath.Join(t.TempDir(), "jaeger.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, jaegerConfig, s.query, freeAddr(t), s.otlp), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "jaeger.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "--config", file)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		err := cmd.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("jaeger: %v\n%s", err, said)
		}
		log.Close()
	})
	s.wait(t, "jaeger to answer", func(ctx context.Context) bool {
		var services struct{ Data []string }
		return s.get(ctx, "/api/services", &services) == nil && portOpen(ctx, s.otlp)
	})
	return s
}

func portOpen(ctx context.Context, addr string) bool {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *server) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.query+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return json.Unmarshal(body, into)
}

// wait asks every 100 ms until done says so.
func (s *server) wait(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %v for %s", deadline, what)
		}
	}
}

// shown is a trace as Jaeger's API shows it.
type shown struct {
	TraceID   string
	Spans     []span
	Processes map[string]struct {
		ServiceName string
		Tags        []tag
	}
}

type span struct {
	SpanID, OperationName, ProcessID string
	StartTime, Duration              int64 // µs
	References                       []struct{ RefType, TraceID, SpanID string }
	Tags                             []tag
	Logs                             []struct{ Fields []tag }
}

type tag struct {
	Key   string
	Value any
}

// trace waits until Jaeger shows a trace with at least n spans.
func (s *server) trace(t *testing.T, id string, n int) *shown {
	t.Helper()
	var got struct{ Data []shown }
	s.wait(t, fmt.Sprintf("%d spans of trace %s", n, id), func(ctx context.Context) bool {
		got.Data = nil
		return s.get(ctx, "/api/traces/"+id, &got) == nil && len(got.Data) == 1 && len(got.Data[0].Spans) >= n
	})
	return &got.Data[0]
}

func (tr *shown) byID(id string) *span {
	for i := range tr.Spans {
		if tr.Spans[i].SpanID == id {
			return &tr.Spans[i]
		}
	}
	return nil
}

// parent returns the span that sp is a child of, nil for a root.
func (tr *shown) parent(t *testing.T, sp *span) *span {
	t.Helper()
	for _, r := range sp.References {
		if r.RefType != "CHILD_OF" || r.TraceID != tr.TraceID {
			continue
		}
		if p := tr.byID(r.SpanID); p != nil {
			return p
		}
		t.Errorf("the parent of %s is not in the trace", sp.OperationName)
	}
	return nil
}

// instance names the process of sp.
func (tr *shown) instance(sp *span) string {
	p := tr.Processes[sp.ProcessID]
	return p.ServiceName + "/" + fmt.Sprint(value(p.Tags, "service.instance.id"))
}

// of returns the spans of one process with one name, by start.
func (tr *shown) of(instance, name string) []*span {
	var out []*span
	for i := range tr.Spans {
		if sp := &tr.Spans[i]; sp.OperationName == name && tr.instance(sp) == instance {
			out = append(out, sp)
		}
	}
	slices.SortFunc(out, func(a, b *span) int { return int(a.StartTime - b.StartTime) })
	return out
}

func value(tags []tag, key string) any {
	for _, tg := range tags {
		if tg.Key == key {
			return tg.Value
		}
	}
	return nil
}

func (sp *span) failed() bool { return value(sp.Tags, "error") == true }
func (sp *span) end() int64   { return sp.StartTime + sp.Duration }
