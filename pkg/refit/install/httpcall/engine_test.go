package httpcall

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/refit/install/installtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is an HTTP server that is paused, updated and resumed, as real engines are.
type engine struct {
	t    *testing.T
	addr string

	mu      sync.Mutex
	server  *http.Server
	ended   chan struct{}
	served  installtest.Served
	paused  bool
	refuse  bool
	stalled chan struct{}
	calls   []string                                              // "METHOD path", in order
	answer  map[string]func(http.ResponseWriter, int) (done bool) // by path, with the number of the call to it, from 1; not done: as usual
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	e := &engine{t: t, answer: map[string]func(http.ResponseWriter, int) bool{}}
	e.listen("127.0.0.1:0")
	t.Cleanup(e.stop)
	return e
}

func (e *engine) listen(addr string) {
	l, err := (&net.ListenConfig{}).Listen(e.t.Context(), "tcp", addr)
	if err != nil {
		e.t.Fatal(err)
	}
	e.addr = l.Addr().String()
	server, ended := &http.Server{Handler: e}, make(chan struct{})
	e.server, e.ended = server, ended
	go func() { defer close(ended); _ = server.Serve(l) }()
}

func (e *engine) stop() {
	_ = e.server.Close()
	<-e.ended
}

func (e *engine) vanish() (comeBack func()) {
	e.stop()
	return func() { e.listen(e.addr) }
}

func (e *engine) stall() (goOn func()) {
	hold := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stalled = hold
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		close(hold)
		e.stalled = nil
	}
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.calls = append(e.calls, r.Method+" "+r.URL.Path)
	nth := 0
	for _, c := range e.calls {
		if c == r.Method+" "+r.URL.Path {
			nth++
		}
	}
	special, stalled := e.answer[r.URL.Path], e.stalled
	e.mu.Unlock()
	if special != nil && special(w, nth) {
		return
	}
	switch r.URL.Path {
	case "/pause", "/resume":
		e.mu.Lock()
		e.paused = r.URL.Path == "/pause"
		e.mu.Unlock()
		fmt.Fprintf(w, `{"status":"ok"}`)
	case "/update":
		e.update(w, r, stalled)
	default:
		http.NotFound(w, r)
	}
}

func (e *engine) update(w http.ResponseWriter, r *http.Request, stalled chan struct{}) {
	var in installtest.Served
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if stalled != nil {
		select {
		case <-stalled:
		case <-r.Context().Done():
		}
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.paused:
		http.Error(w, "not paused", http.StatusConflict)
	case e.refuse:
		e.refuse = false
		http.Error(w, `{"error":{"message":"k_proj: have [4, 4], need [4, 8]"}}`, http.StatusInternalServerError)
	default:
		e.served = in
		fmt.Fprintf(w, `{"success":true,"version":%q,"results":[{"state":"applied","ms":4.5}]}`, in.Key)
	}
}

func (e *engine) bench(h *Installer) installtest.Bench {
	return installtest.Bench{
		Installer: h, Pauses: true,
		Served: func() installtest.Served { e.mu.Lock(); defer e.mu.Unlock(); return e.served },
		Refuse: func() { e.mu.Lock(); defer e.mu.Unlock(); e.refuse = true },
		Vanish: e.vanish,
		Stall:  e.stall,
	}
}

// steps are pause, update, resume of an engine.
func (e *engine) steps() []Step {
	url := "http://" + e.addr
	resume := Step{Name: "resume", URL: url + "/resume", Idempotent: true}
	pause := Step{Name: "pause", URL: url + "/pause", Pause: PauseBegins, OnFailure: []Step{resume}}
	update := Step{
		Name: "update", URL: url + "/update", Changes: true,
		Body:   `{"Key":{{json .Key}},"Files":{{json .Files}}}`,
		Fields: map[string]string{"success": "true", "version": "{{.Key}}", "results.0.state": "applied"},
	}
	resume.Pause = PauseEnds
	return []Step{pause, update, resume}
}

func newInstaller(t *testing.T, steps []Step) *Installer {
	t.Helper()
	h, err := New(Config{Steps: steps})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestConformance(t *testing.T) {
	installtest.Conformance(t, func(t *testing.T) installtest.Bench {
		e := newEngine(t)
		return e.bench(newInstaller(t, e.steps()))
	})
}
