package tracesink

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/drydock-rl/drydock/pkg/tracing"
)

var nonce = [16]byte{7}

// TestVersionAcrossProcesses sends what a publisher and a receiver make of one
// version through real exporters, by each protocol, and forwards it to a second
// sink by the other.
func TestVersionAcrossProcesses(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		far := start(t, Config{})
		forward, endpoint := far.HTTPURL(), ""
		if protocol == "http/protobuf" {
			forward = "grpc://" + strings.TrimPrefix(far.GRPCURL(), "http://")
		}
		near := start(t, Config{Forward: forward, Logger: testLogger(t)})
		if endpoint = near.GRPCURL(); protocol == "http/protobuf" {
			endpoint = near.HTTPURL()
		}
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
		t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")

		pub, rec := startProcess(t, "drydock-publisher", "0"), startProcess(t, "drydock-receiver", "0")
		publish(t, pub, 42)
		apply(t, rec, 42)
		for _, p := range []*tracing.Telemetry{pub, rec} {
			if err := p.Shutdown(within(t)); err != nil {
				t.Fatalf("%s: %v", protocol, err)
			}
		}
		id := TraceID(tracing.VersionContext(nonce, 42).TraceID())
		for which, s := range map[string]*Sink{"near": near, "far": far} {
			tr, err := s.Wait(within(t), id, func(t Trace) bool { return len(t.Spans) == 7 })
			if err != nil {
				t.Fatalf("%s, %s sink: %v\n%s", protocol, which, err, drawn(tr))
			}
			checkVersion(t, &tr)
		}
	}
}

func startProcess(t *testing.T, service, instance string) *tracing.Telemetry {
	t.Helper()
	tel, err := tracing.Setup(t.Context(), tracing.SetupConfig{Service: service, Instance: instance, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	return tel
}

func publish(t *testing.T, tel *tracing.Telemetry, version uint64) {
	ctx, root := tracing.StartVersionRoot(t.Context(), tel.Tracer(), nonce, version, "version 42")
	_, span := tel.Tracer().Start(ctx, "publish", trace.WithSpanKind(trace.SpanKindProducer))
	span.End()
	root.End()
	counter, err := tel.MeterProvider.Meter(tracing.Scope).Int64Counter("drydock.test", metric.WithUnit("By"))
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(ctx, 1)
}

func apply(t *testing.T, tel *tracing.Telemetry, version uint64) {
	ctx, c := tracing.Start(tracing.JoinVersion(t.Context(), nonce, version), tracing.CycleOptions{Tracer: tel.Tracer(), Version: version})
	sctx, phase := c.Phase(ctx, tracing.PhaseStage)
	_, sp := c.Stage(sctx, tracing.WireTransfer)
	d := sp.Detail("read", tracing.AttrSource.Int(0))
	d.AddBytes(1 << 20)
	d.End(nil)
	sp.End(nil)
	phase.End(nil)
	_, phase = c.Phase(c.Activate(t.Context()), tracing.PhaseApply)
	phase.End(nil)
	c.Finish(tracing.OutcomeApplied, nil)
}

// checkVersion wants the parents that the trace's shape promises.
func checkVersion(t *testing.T, tr *Trace) {
	t.Helper()
	parents := map[string]string{
		"version 42": "", "publish": "version 42", "refit": "version 42",
		tracing.PhaseStage: "refit", tracing.PhaseApply: "refit", "wire_transfer": tracing.PhaseStage, "read": "wire_transfer",
	}
	names := map[SpanID]string{}
	for _, sp := range tr.Spans {
		names[sp.ID] = sp.Name
	}
	for _, sp := range tr.Spans {
		if want, ok := parents[sp.Name]; !ok || names[sp.Parent] != want {
			t.Errorf("span %s hangs on %q, want %q\n%s", sp.Name, names[sp.Parent], want, drawn(*tr))
		}
	}
	if read := tr.Named("read")[0]; read.Attr("drydock.bytes") != int64(1<<20) || read.Process() != "drydock-receiver/0" {
		t.Errorf("read of %v bytes by %s", read.Attr("drydock.bytes"), read.Process())
	}
}

func drawn(tr Trace) string {
	var b strings.Builder
	_ = tr.Draw(&b, DrawOptions{})
	return b.String()
}

func TestFetch(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	b := &builder{id: TraceID{0x42}}
	s.export(t, refit(b)...)
	got, err := Fetch(within(t), s.HTTPURL(), b.id)
	if err != nil {
		t.Fatal(err)
	}
	if here := s.Trace(b.id); drawn(got) != drawn(here) {
		t.Errorf("fetched\n%s\nkept\n%s", drawn(got), drawn(here))
	}
	if text := httpGet(t, s.HTTPURL()+"/traces/"+b.id.String()+"?draw"); text != drawn(got) {
		t.Errorf("drawn by the sink:\n%s", text)
	}
	var list []struct {
		ID    string `json:"trace_id"`
		Root  string
		Spans int
	}
	if err := json.Unmarshal([]byte(httpGet(t, s.HTTPURL()+"/traces")), &list); err != nil || len(list) != 1 ||
		list[0].Root != "version 42" || list[0].ID != b.id.String() || list[0].Spans != 14 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := Fetch(within(t), s.HTTPURL(), TraceID{1}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("unknown trace: %v", err)
	}
}

func httpGet(t *testing.T, url string) string {
	t.Helper()
	b, err := get(within(t), url)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWaitSaysWhatIsThere(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	b := &builder{id: TraceID{0x42}}
	s.export(t, refit(b)...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	tr, err := s.Wait(ctx, b.id, func(t Trace) bool { return len(t.Spans) > 14 })
	if err == nil || !strings.Contains(err.Error(), "14 spans") || len(tr.Spans) != 14 {
		t.Errorf("%d spans, %v", len(tr.Spans), err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := newStore(3, 10)
	send := func(id byte, spans int) {
		b := &builder{id: TraceID{id}}
		for range spans {
			s.add([]*tracepb.ResourceSpans{from("a", "", b.span(nil, "x", 0, 1))})
		}
	}
	send(1, 2)
	send(1, 2) // the same span ids: nothing new
	send(2, 2)
	send(3, 2)
	send(4, 2) // a fourth trace: 1 goes
	if n := len(s.trace(TraceID{1}).Spans); n != 0 || s.dropped != 2 || s.nspans != 6 {
		t.Errorf("trace 1 has %d spans, dropped %d, kept %d", n, s.dropped, s.nspans)
	}
	send(4, 9) // 13 spans: 2 and 3 make room
	if got := len(s.list()); got != 1 || s.nspans != 9 || s.dropped != 6 {
		t.Errorf("%d traces, %d spans, dropped %d", got, s.nspans, s.dropped)
	}
	send(4, 12) // one trace over the limit keeps what it has
	if n := len(s.trace(TraceID{4}).Spans); n != 10 || s.dropped != 8 {
		t.Errorf("trace 4 has %d spans, dropped %d", n, s.dropped)
	}
	s.add([]*tracepb.ResourceSpans{from("a", "", &tracepb.Span{TraceId: []byte{1}, SpanId: []byte{2}})})
	if s.dropped != 9 {
		t.Errorf("a span without proper ids is kept")
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := start(t, Config{MaxRequestBytes: 1 << 16})
	big, err := proto.Marshal(&coltrace.ExportTraceServiceRequest{ResourceSpans: refit(&builder{id: TraceID{1}})})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		body     []byte
		kind     string
		encoding string
		want     int
	}{
		"fine":        {big, protobufType, "", 200},
		"gzip":        {zipped(t, big), protobufType, "gzip", 200},
		"json":        {[]byte("{}"), "application/json", "", 415},
		"not proto":   {[]byte("\xff\xff\xff"), protobufType, "", 400},
		"not gzip":    {big, protobufType, "gzip", 400},
		"zstd":        {big, protobufType, "zstd", 400},
		"too long":    {make([]byte, 1<<17), protobufType, "", 413},
		"gzip bomb":   {zipped(t, make([]byte, 1<<24)), protobufType, "gzip", 413},
		"cut gzip":    {zipped(t, big)[:40], protobufType, "gzip", 400},
		"empty trace": {nil, protobufType, "", 200},
	} {
		req, err := http.NewRequestWithContext(within(t), http.MethodPost, s.HTTPURL()+"/v1/traces", bytes.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", test.kind)
		if test.encoding != "" {
			req.Header.Set("Content-Encoding", test.encoding)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%s: %s %s, want %d", name, resp.Status, text, test.want)
		}
	}
}

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestForwardToNobodyIsSaidOnce(t *testing.T) {
	t.Parallel()
	dead := start(t, Config{})
	address := dead.HTTPURL()
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := Start(Config{Forward: address, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{id: TraceID{1}}
	for range 5 {
		s.export(t, from("a", "", b.span(nil, "x", 0, 1)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "not forwarded"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &log)
	}
	if n := len(s.Trace(b.id).Spans); n != 5 {
		t.Errorf("%d spans kept", n)
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"not understood":       {Forward: "ftp://host"},
		"expected http://host": {Forward: "4317"},
		"listen for spans":     {GRPCAddr: "256.0.0.1:0"},
		"limits are":           {MaxSpans: -1},
	} {
		if s, err := Start(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v", c, s, err)
		}
	}
}

func FuzzIngest(f *testing.F) {
	seed, err := proto.Marshal(&coltrace.ExportTraceServiceRequest{ResourceSpans: refit(&builder{id: TraceID{1}})})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r coltrace.ExportTraceServiceRequest
		if proto.Unmarshal(b, &r) != nil {
			return
		}
		s := newStore(4, 64)
		s.add(r.GetResourceSpans())
		for _, sum := range s.list() {
			tr := s.trace(sum.ID)
			if err := tr.Draw(io.Discard, DrawOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
