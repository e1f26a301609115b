package tracesink

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	collog "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetric "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // senders may compress
	"google.golang.org/protobuf/proto"
)

// signal is the last path element of an OTLP/HTTP address.
type signal string

const (
	traces  signal = "traces"
	metrics signal = "metrics"
	logs    signal = "logs"
)

func (s *Sink) newGRPC() *grpc.Server {
	g := grpc.NewServer(grpc.MaxRecvMsgSize(s.c.MaxRequestBytes))
	coltrace.RegisterTraceServiceServer(g, traceService{s: s})
	colmetric.RegisterMetricsServiceServer(g, metricService{s: s})
	collog.RegisterLogsServiceServer(g, logService{s: s})
	return g
}

type traceService struct {
	coltrace.UnimplementedTraceServiceServer
	s *Sink
}

func (t traceService) Export(_ context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	t.s.store.add(r.GetResourceSpans())
	t.s.forward.send(traces, r)
	return &coltrace.ExportTraceServiceResponse{}, nil
}

type metricService struct {
	colmetric.UnimplementedMetricsServiceServer
	s *Sink
}

func (m metricService) Export(_ context.Context, r *colmetric.ExportMetricsServiceRequest) (*colmetric.ExportMetricsServiceResponse, error) {
	m.s.forward.send(metrics, r)
	return &colmetric.ExportMetricsServiceResponse{}, nil
}

type logService struct {
	collog.UnimplementedLogsServiceServer
	s *Sink
}

func (l logService) Export(_ context.Context, r *collog.ExportLogsServiceRequest) (*collog.ExportLogsServiceResponse, error) {
	l.s.forward.send(logs, r)
	return &collog.ExportLogsServiceResponse{}, nil
}

func (s *Sink) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", s.post(func(b []byte) (proto.Message, error) {
		var r coltrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(b, &r); err != nil {
			return nil, err
		}
		return must(traceService{s: s}.Export(context.Background(), &r))
	}))
	mux.HandleFunc("POST /v1/metrics", s.post(func(b []byte) (proto.Message, error) {
		var r colmetric.ExportMetricsServiceRequest
		if err := proto.Unmarshal(b, &r); err != nil {
			return nil, err
		}
		return must(metricService{s: s}.Export(context.Background(), &r))
	}))
	mux.HandleFunc("POST /v1/logs", s.post(func(b []byte) (proto.Message, error) {
		var r collog.ExportLogsServiceRequest
		if err := proto.Unmarshal(b, &r); err != nil {
			return nil, err
		}
		return must(logService{s: s}.Export(context.Background(), &r))
	}))
	mux.HandleFunc("GET /traces", s.getTraces)
	mux.HandleFunc("GET /traces/{id}", s.getTrace)
	return mux
}

// must turns a typed result into the interface.
func must[M proto.Message](m M, err error) (proto.Message, error) { return m, err }

// post handles one OTLP/HTTP request; take decodes the body and answers.
func (s *Sink) post(take func([]byte) (proto.Message, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); t != protobufType {
			http.Error(w, fmt.Sprintf("content type %q is not understood, expected %s", t, protobufType), http.StatusUnsupportedMediaType)
			return
		}
		body, err := s.read(w, r)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		answer, err := take(body)
		if err != nil {
			http.Error(w, "decode request: "+err.Error(), http.StatusBadRequest)
			return
		}
		b, err := proto.Marshal(answer)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", protobufType)
		_, _ = w.Write(b)
	}
}

const protobufType = "application/x-protobuf"

// errTooLarge answers a request that decompresses beyond the limit.
var errTooLarge = errors.New("request is too large")

// read returns the decompressed body. The limit holds for both forms.
func (s *Sink) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := int64(s.c.MaxRequestBytes)
	var body io.Reader = http.MaxBytesReader(w, r.Body, limit)
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, fmt.Errorf("decompress request: %w", err)
		}
		body = z
	default:
		return nil, fmt.Errorf("content encoding %q is not understood, expected gzip or none", enc)
	}
	b, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: over %d bytes", errTooLarge, limit)
	}
	return b, nil
}

func statusOf(err error) int {
	var tooLong *http.MaxBytesError
	if errors.Is(err, errTooLarge) || errors.As(err, &tooLong) {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}
