// Package adminhttp is the small HTTP server that an operator, a probe and a
// scraper ask about one process: /metrics, /healthz and /readyz, and profiles on
// a port of its own when that is asked for.
//
// It never changes anything, holds no state of the refit, and answers also while
// the process is not ready. Health ("may this process go on") and readiness
// ("may it be counted on") are lists of named checks that the program gives;
// a check that does not answer in time has failed.
//
// The law: the answer is 200 exactly if every check passed, and the body names
// each check with what it said.
package adminhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"
)

// Check returns nil when all is well. It must honour ctx.
type Check func(ctx context.Context) error

// Config describes the server.
type Config struct {
	Addr         string           // of /metrics, /healthz, /readyz; default 127.0.0.1:0
	PprofAddr    string           // of /debug/pprof/; default: no profiles
	Metrics      http.Handler     // answers /metrics; default: 404
	Live         map[string]Check // what /healthz asks; default: nothing, always healthy
	Ready        map[string]Check // what /readyz asks; default: nothing, always ready
	CheckTimeout time.Duration    // for all checks of one request together; default 2 s
	Logger       *slog.Logger     // hears of a listener that fails later; default: none
}

func (c Config) withDefaults() Config {
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	if c.Metrics == nil {
		c.Metrics = http.NotFoundHandler()
	}
	if c.CheckTimeout == 0 {
		c.CheckTimeout = 2 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server is running until Close.
type Server struct {
	log     *slog.Logger
	servers []*http.Server
	addrs   []net.Addr // of servers
	serving sync.WaitGroup
}

// Start listens and serves. It fails when a port is taken; nothing listens then.
func Start(c Config) (*Server, error) {
	c = c.withDefaults()
	s := &Server{log: c.Logger}
	if err := s.serve("admin", c.Addr, c.routes()); err != nil {
		return nil, err
	}
	if c.PprofAddr != "" {
		if err := s.serve("pprof", c.PprofAddr, profiles()); err != nil {
			return nil, errors.Join(err, s.Close(context.Background()))
		}
	}
	return s, nil
}

func (s *Server) serve(what, addr string, h http.Handler) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("serve %s over HTTP: %w", what, err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	s.servers, s.addrs = append(s.servers, srv), append(s.addrs, l.Addr())
	s.serving.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("admin server stopped", "server", what, "error", err)
		}
	})
	return nil
}

// URL is where /metrics, /healthz and /readyz are.
func (s *Server) URL() string { return "http://" + s.addrs[0].String() }

// PprofURL is where the profiles are, empty without them.
func (s *Server) PprofURL() string {
	if len(s.addrs) < 2 {
		return ""
	}
	return "http://" + s.addrs[1].String()
}

// Close stops listening and waits for requests in flight until ctx ends; then
// they are cut off. It is idempotent.
func (s *Server) Close(ctx context.Context) error {
	var errs []error
	for _, srv := range s.servers {
		if err := srv.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close admin server: %w", errors.Join(err, srv.Close())))
		}
	}
	s.serving.Wait()
	return errors.Join(errs...)
}

func (c *Config) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", c.Metrics)
	mux.HandleFunc("GET /healthz", answer(c.Live, c.CheckTimeout))
	mux.HandleFunc("GET /readyz", answer(c.Ready, c.CheckTimeout))
	return mux
}

// answer runs the checks at once and reports each, in the order of their names.
func answer(checks map[string]Check, limit time.Duration) http.HandlerFunc {
	names := slices.Sorted(maps.Keys(checks))
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		errs := run(ctx, names, checks)
		var body strings.Builder
		status, verdict := http.StatusOK, "ok"
		for i, name := range names {
			if errs[i] == nil {
				fmt.Fprintf(&body, "[ok]   %s\n", name)
				continue
			}
			status, verdict = http.StatusServiceUnavailable, "not ok"
			fmt.Fprintf(&body, "[fail] %s: %s\n", name, strings.ReplaceAll(errs[i].Error(), "\n", "; "))
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		fmt.Fprintf(w, "%s%s\n", body.String(), verdict)
	}
}

// run returns what each check said. One that has not answered when ctx ends has
// failed, and is waited for no longer.
func run(ctx context.Context, names []string, checks map[string]Check) []error {
	type verdict struct {
		i   int
		err error
	}
	said := make(chan verdict, len(names)) // room for all: a late one ends all the same
	errs := make([]error, len(names))
	for i, name := range names {
		errs[i] = errNoAnswer
		go func() { said <- verdict{i, checks[name](ctx)} }()
	}
	for range names {
		select {
		case v := <-said:
			errs[v.i] = v.err
		case <-ctx.Done():
			return errs
		}
	}
	return errs
}

var errNoAnswer = errors.New("no answer in time")

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
