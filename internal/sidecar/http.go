package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Handler answers the API. Each request knows who sent it: see Serve.
func (s *Sidecar) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", s.handle(s.getStatus))
	for _, kind := range []string{"arenas", "external"} {
		external := kind == "external"
		path := "/v1/" + kind + "/{rank}"
		mux.HandleFunc("PUT "+path, s.handle(func(w http.ResponseWriter, r *http.Request) (any, error) { return s.putArena(w, r, external) }))
		mux.HandleFunc("GET "+path, s.handle(s.getArena))
		mux.HandleFunc("POST "+path+"/detach", s.handle(s.postDetach))
		mux.HandleFunc("POST "+path+"/begin", s.handle(s.version((*Sidecar).begin)))
		mux.HandleFunc("POST "+path+"/publish", s.handle(s.version((*Sidecar).publish)))
		mux.HandleFunc("POST "+path+"/drain", s.handle(s.version((*Sidecar).drain)))
		mux.HandleFunc("POST "+path+"/await", s.handle(s.version((*Sidecar).await)))
		mux.HandleFunc("POST "+path+"/served", s.handle(s.postServed))
	}
	mux.HandleFunc("/", s.handle(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return nil, refuse(Unsupported, "%s %s is not part of API version %d", r.Method, r.URL.Path, APIVersion)
	}))
	return mux
}

// handle writes what a handler returns, or its error.
func (s *Sidecar) handle(f func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := f(w, r)
		status := http.StatusOK
		if e := coded(err); e != nil {
			status = statuses[e.Code]
			answer = map[string]*Error{"error": e}
			s.cfg.Logger.Info("request refused", "method", r.Method, "path", r.URL.Path, "code", string(e.Code), "error", err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			s.cfg.Logger.Debug("answer not delivered", "path", r.URL.Path, "error", err)
		}
	}
}

func rankOf(r *http.Request) (int, error) {
	rank, err := strconv.Atoi(r.PathValue("rank"))
	if err != nil || rank < 0 {
		return 0, refuse(BadRequest, "rank %q is not a number", r.PathValue("rank"))
	}
	return rank, nil
}

func (s *Sidecar) getStatus(_ http.ResponseWriter, r *http.Request) (any, error) {
	out := Status{API: APIVersion, Model: s.cfg.Model, PID: os.Getpid(), Host: s.host, Started: s.started, Arenas: []ArenaStatus{}}
	for _, a := range s.all() {
		out.Arenas = append(out.Arenas, a.status(r.Context()))
	}
	return out, nil
}

func (s *Sidecar) putArena(w http.ResponseWriter, r *http.Request, external bool) (any, error) {
	rank, err := rankOf(r)
	if err != nil {
		return nil, err
	}
	var req AttachRequest
	if err := decode(w, r, &req); err != nil {
		return nil, err
	}
	return s.attach(r.Context(), rank, pidOf(r.Context()), &req, external)
}

// asked is the arena that a request names.
func (s *Sidecar) asked(r *http.Request) (*arena, error) {
	rank, err := rankOf(r)
	if err != nil {
		return nil, err
	}
	return s.arenaOf(rank)
}

// askedWith is asked for a request that has a body, which it decodes.
func (s *Sidecar) askedWith(w http.ResponseWriter, r *http.Request, body any) (*arena, error) {
	a, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	return a, decode(w, r, body)
}

func (s *Sidecar) getArena(_ http.ResponseWriter, r *http.Request) (any, error) {
	a, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	return a.status(r.Context()), nil
}

func (s *Sidecar) postDetach(w http.ResponseWriter, r *http.Request) (any, error) {
	var req VersionRequest
	a, err := s.askedWith(w, r, &req)
	if err != nil {
		return nil, err
	}
	return map[string]bool{"removed": true}, s.detach(r.Context(), a, &req)
}

// version wraps what is asked of one version: the answer says where it is after the wait. That it failed is an error.
func (s *Sidecar) version(ask func(*Sidecar, *arena, *VersionRequest) (*version, error)) func(http.ResponseWriter, *http.Request) (any, error) {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		var req VersionRequest
		a, err := s.askedWith(w, r, &req)
		if err != nil {
			return nil, err
		}
		v, err := ask(s, a, &req)
		if err != nil {
			return nil, err
		}
		a.await(r.Context(), v, req.wait())
		answer := a.look(r.Context(), v)
		if answer.Error != nil {
			return nil, answer.Error
		}
		return answer, nil
	}
}

func (s *Sidecar) begin(a *arena, r *VersionRequest) (*version, error) {
	return a.begin(r, s.cfg.Now())
}

func (s *Sidecar) drain(a *arena, r *VersionRequest) (*version, error) {
	return a.withdraw(r, s.cfg.Now())
}
func (s *Sidecar) await(a *arena, r *VersionRequest) (*version, error) { return a.find(r.Version) }

func (s *Sidecar) publish(a *arena, r *VersionRequest) (*version, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := a.geometry.has(r.Changed); err != nil {
		return nil, err
	}
	t := &task{base: r.Base, changed: r.Changed}
	if r.Traceparent != "" {
		carrier := propagation.MapCarrier{"traceparent": r.Traceparent}
		t.parent = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		if !t.parent.IsValid() {
			return nil, refuse(BadRequest, "traceparent %q is not one", r.Traceparent)
		}
	}
	if a.external {
		var err error
		if t.digests, err = a.geometry.digests(r.Digests); err != nil {
			return nil, err
		}
	} else if len(r.Digests) > 0 {
		return nil, refuse(BadRequest, "the sidecar makes the digests of its own slots")
	}
	return a.publish(r, t, s.cfg.Now())
}

// ServedRequest asks for receivers to serve a version.
type ServedRequest struct {
	Version   uint64 `json:"version"`
	Receivers int    `json:"receivers"`
	WaitMS    int64  `json:"wait_ms,omitempty"`
}

// ServedAnswer says which receivers serve the version or a newer one.
type ServedAnswer struct {
	Enough    bool     `json:"enough"`
	Receivers []string `json:"receivers"`
	Others    []string `json:"others,omitempty"` // with what they serve, or why not
}

// servedPoll is how often statuses are read while receivers are waited for.
const servedPoll = 50 * time.Millisecond

func (s *Sidecar) postServed(w http.ResponseWriter, r *http.Request) (any, error) {
	var req ServedRequest
	a, err := s.askedWith(w, r, &req)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add((&VersionRequest{WaitMS: req.WaitMS}).wait())
	tick := time.NewTicker(servedPoll)
	defer tick.Stop()
	for {
		answer, err := a.served(r.Context(), &req)
		if err != nil || answer.Enough || time.Now().After(until) {
			return answer, err
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil, errors.Join(refuse(ArenaBusy, "the client has left"), r.Context().Err())
		}
	}
}
