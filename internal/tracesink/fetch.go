package tracesink

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// fetchLimit bounds a trace that Fetch reads.
const fetchLimit = 256 << 20

// getTraces answers GET /traces: the summaries as JSON.
func (s *Sink) getTraces(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Traces())
}

// getTrace answers GET /traces/{id}: the trace as an OTLP request, or drawn
// with ?draw.
func (s *Sink) getTrace(w http.ResponseWriter, r *http.Request) {
	id, err := ParseTraceID(r.PathValue("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	raw := s.store.raw(id)
	if len(raw) == 0 {
		http.Error(w, fmt.Sprintf("no span of trace %s is here", id), http.StatusNotFound)
		return
	}
	if r.URL.Query().Has("draw") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		t := newTrace(id, raw)
		_ = t.Draw(w, DrawOptions{})
		return
	}
	b, err := proto.Marshal(otlpRequest(raw))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", protobufType)
	_, _ = w.Write(b)
}

// otlpRequest makes one OTLP request of spans; each keeps its resource.
func otlpRequest(raw []rawSpan) *coltrace.ExportTraceServiceRequest {
	var r coltrace.ExportTraceServiceRequest
	for _, s := range raw {
		r.ResourceSpans = append(r.ResourceSpans, &tracepb.ResourceSpans{Resource: s.res, ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{s.span}}}})
	}
	return &r
}

// Fetch reads a trace out of a sink in another process, by its HTTPURL.
func Fetch(ctx context.Context, base string, id TraceID) (Trace, error) {
	body, err := get(ctx, strings.TrimSuffix(base, "/")+"/traces/"+id.String())
	if err != nil {
		return Trace{}, fmt.Errorf("fetch trace %s: %w", id, err)
	}
	var r coltrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &r); err != nil {
		return Trace{}, fmt.Errorf("fetch trace %s: decode: %w", id, err)
	}
	var raw []rawSpan
	for _, rs := range r.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, sp := range ss.GetSpans() {
				raw = append(raw, rawSpan{rs.GetResource(), sp})
			}
		}
	}
	return newTrace(id, raw), nil
}

func get(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, fetchLimit))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}
