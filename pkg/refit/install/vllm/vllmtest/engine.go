package vllmtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Engine is the server. Its fields may be set before the first call, and by a test between calls.
type Engine struct {
	Backend string // of weight transfer; empty: none
	Dev     bool   // dev mode: else most calls don't exist
	DP      int    // data parallel replicas that don't answer collective calls; 0: none

	Captures []map[string]any // what the first rank answers to drydock_capture, one call after the other

	mu      sync.Mutex
	ranks   []*Rank
	queues  [][]answer // of each rank: what it answered and nobody took
	label   string
	paused  bool
	running int // requests that run
	aborted int
	stale   bool // the prefix cache holds what older weights computed
	calls   []string
	traces  map[string]string // path: traceparent of the last call
	faults  map[string]*Fault

	t      *testing.T
	addr   string
	server *http.Server
	life   int // how often it was killed: a request of an earlier life does nothing any more
}

// Fault is what happens at a call instead of, or beside, its work. The zero value is ordinary.
type Fault struct {
	Times  int    // 0: once
	Status int    // answer so, and do nothing
	Drop   bool   // do the work, and close the connection without an answer
	Before func() // called first, without any lock
	Lie    bool   // answer as if it were done, and do nothing
}

type answer struct {
	value any
	err   error
}

// New starts an engine with so many tensor-parallel ranks on its checkpoint.
func New(t *testing.T, ranks int) *Engine {
	t.Helper()
	e := &Engine{Backend: "drydock", Dev: true, label: "default", t: t, faults: map[string]*Fault{}, traces: map[string]string{}}
	e.Resize(ranks)
	e.addr = "127.0.0.1:0"
	e.Start()
	t.Cleanup(e.Kill)
	return e
}

// Resize makes it another engine, with so many ranks, on its checkpoint.
func (e *Engine) Resize(ranks int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ranks, e.queues = nil, make([][]answer, ranks)
	for k := range ranks {
		e.ranks = append(e.ranks, &Rank{rank: k, state: "idle", weights: "checkpoint", Raise: map[string]string{}})
	}
	e.label, e.paused, e.running = "default", false, 0
}

// URL is where it listens.
func (e *Engine) URL() string { return "http://" + e.addr }

// Start listens again, at the same place, after Kill. What it holds is as it was: Resize makes it a new process.
func (e *Engine) Start() {
	e.t.Helper()
	l, err := net.Listen("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	e.addr = l.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(e.serve), ReadHeaderTimeout: time.Minute}
	e.locked(func() { e.server = server })
	go server.Serve(l) //nolint:errcheck // ends with Kill
}

// Kill closes the port and every connection; the calls that run do no more of their work.
func (e *Engine) Kill() {
	e.locked(func() {
		e.life++
		_ = e.server.Close()
	})
}

// Rank is the k-th worker, for setting its faults.
func (e *Engine) Rank(k int) *Rank { return e.ranks[k] }

// At sets what happens at the next call of path, as "POST /pause" or, for a worker's method, "rpc drydock_undo".
func (e *Engine) At(call string, f Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f.Times = max(f.Times, 1)
	e.faults[call] = &f
}

// Run adds so many running requests; Pause, by somebody else, stops scheduling.
func (e *Engine) Run(n int) { e.locked(func() { e.running += n }) }

// Pause is somebody else's.
func (e *Engine) Pause() { e.locked(func() { e.paused = true }) }

// Resume is somebody else's.
func (e *Engine) Resume() { e.locked(func() { e.paused = false }) }

func (e *Engine) locked(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
}

// State is what a client could see of it, and what only the workers know.
type State struct {
	Label   string   // that it shows
	Weights []string // of each rank: a label, "checkpoint" or "torn"
	Files   []string // that each rank serves from, nil for the checkpoint
	Paused  bool
	Stale   bool // a prefix of older weights would be used
	Aborted int  // requests
	Owner   string
	Open    bool // an update is open
	InHand  string
}

// State looks at all of it.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := State{Label: e.label, Paused: e.paused, Stale: e.stale, Aborted: e.aborted, Owner: e.ranks[0].owner, InHand: e.ranks[0].inHand}
	for _, r := range e.ranks {
		s.Weights = append(s.Weights, r.weights)
		s.Open = s.Open || r.active
		if r.serving != nil {
			s.Files = append(s.Files, r.serving.Files...)
		}
	}
	return s
}

// Calls lists the calls so far that change something, in order, without their queries.
func (e *Engine) Calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

// Traceparent is the header of the last call of path.
func (e *Engine) Traceparent(path string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.traces[path]
}

// collective has every rank answer, and takes the answers as vLLM's executor does: at the first error the later ranks'
// answers stay in their queues, and go to the calls that come after.
func (e *Engine) collective(method string, do func(r *Rank) (any, error)) ([]any, error) {
	for k, r := range e.ranks {
		var a answer
		if text, raise := r.Raise[method]; raise {
			delete(r.Raise, method)
			a.err = fmt.Errorf("%s", text)
		} else {
			a.value, a.err = do(r)
		}
		e.queues[k] = append(e.queues[k], a)
	}
	values := make([]any, len(e.ranks))
	for k := range e.ranks {
		a := e.queues[k][0]
		e.queues[k] = e.queues[k][1:]
		if a.err != nil {
			return nil, fmt.Errorf("Call to collective_rpc method failed: Worker failed with error '%w'", a.err) //nolint:staticcheck // vLLM's words
		}
		values[k] = a.value
	}
	return values, nil
}

func (e *Engine) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	name := r.Method + " " + r.URL.Path
	var rpc struct {
		Method string            `json:"method"`
		Kwargs map[string]string `json:"kwargs"`
	}
	if r.URL.Path == "/collective_rpc" && json.Unmarshal(body, &rpc) == nil {
		name = "rpc " + rpc.Method
	}
	f, life := e.fault(name)
	if f.Before != nil {
		f.Before()
	}
	e.mu.Lock()
	if e.life != life {
		e.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	if r.Method == http.MethodPost && !strings.HasSuffix(name, "drydock_status") {
		e.calls = append(e.calls, strings.TrimPrefix(name, "POST /"))
	}
	e.traces[r.URL.Path] = r.Header.Get("traceparent")
	status, out := f.Status, any(map[string]any{"error": map[string]string{"message": "a fault of the test"}})
	switch {
	case status != 0:
	case f.Lie:
		status, out = http.StatusOK, map[string]any{"success": true}
	default:
		status, out = e.answer(r, body, rpc.Method, rpc.Kwargs)
	}
	e.mu.Unlock()
	if f.Drop {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out)
}

// fault takes what happens at a call, and the life in which the call came.
func (e *Engine) fault(name string) (Fault, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.faults[name]
	if f == nil {
		return Fault{}, e.life
	}
	if f.Times--; f.Times <= 0 {
		delete(e.faults, name)
	}
	return *f, e.life
}
