// Package sglangtest is a stand-in of an SGLang server: the calls and answers for updating weights as they were seen on
// SGLang 0.5.23, with its traps. Its weights are the text of the version it loaded.
package sglangtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
)

// Fault is what happens at the next call of a path.
type Fault struct {
	Status int    // answer so, and do nothing
	Drop   bool   // do the work, and close the connection without an answer
	Before func() // called first, without any lock
}

// State is what the server holds.
type State struct {
	Label   string   // that it shows
	Weights string   // "run.version" of the file that was loaded, or "checkpoint"
	Files   []string // that were loaded
	Paused  bool
	Running int  // requests
	Aborted int  // requests
	Stale   bool // prefixes of older weights are in the cache
	Dead    bool // the scheduler has died
}

// Server is the stand-in.
type Server struct {
	mu     sync.Mutex
	state  State
	mode   string
	calls  []string
	faults map[string]Fault

	t      *testing.T
	addr   string
	server *http.Server
	life   int // how often it was killed: a request of an earlier life does nothing any more
}

// New starts a server on its checkpoint.
func New(t *testing.T) *Server {
	t.Helper()
	s := &Server{t: t, addr: "127.0.0.1:0", faults: map[string]Fault{}, state: State{Label: "default", Weights: "checkpoint"}}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// URL is where it listens.
func (s *Server) URL() string { return "http://" + s.addr }

// Start listens again, at the same place, after Kill.
func (s *Server) Start() {
	s.t.Helper()
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute}
	s.locked(func() { s.server = server })
	go server.Serve(l) //nolint:errcheck // ends with Kill
}

// Kill closes the port and every connection; the calls that run do no more of their work.
func (s *Server) Kill() {
	s.locked(func() {
		s.life++
		_ = s.server.Close()
	})
}

// At sets what happens at the next call of path.
func (s *Server) At(path string, f Fault) { s.locked(func() { s.faults[path] = f }) }

// Run sets how many requests run.
func (s *Server) Run(n int) { s.locked(func() { s.state.Running = n }) }

// State is a copy of what it holds.
func (s *Server) State() (state State) {
	s.locked(func() { state = s.state })
	return state
}

// Calls lists the paths that were posted to, in order.
func (s *Server) Calls() (calls []string) {
	s.locked(func() { calls = slices.Clone(s.calls) })
	return calls
}

func (s *Server) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	var f Fault
	var life int
	s.locked(func() {
		life, f = s.life, s.faults[r.URL.Path]
		delete(s.faults, r.URL.Path)
	})
	if f.Before != nil {
		f.Before()
	}
	status, out := f.Status, any(map[string]string{"message": "a fault of the test"})
	killed := false
	s.locked(func() {
		if killed = s.life != life; killed {
			return
		}
		if r.Method == http.MethodPost {
			s.calls = append(s.calls, r.URL.Path)
		}
		if status == 0 && !s.state.Dead {
			status, out = s.answer(r.Method+" "+r.URL.Path, body)
		}
	})
	if killed || f.Drop || s.State().Dead {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out)
}

type object = map[string]any

func (s *Server) answer(call string, body []byte) (int, any) {
	switch call {
	case "GET /get_model_info":
		return http.StatusOK, object{"model_path": "checkpoint", "weight_version": s.state.Label}
	case "POST /continue_generation":
		s.state.Paused, s.mode = false, ""
		return http.StatusOK, object{"status": "ok"}
	case "POST /flush_cache": // which says nothing of whether it did
		s.state.Stale = s.state.Stale && s.state.Running > 0
		return http.StatusOK, "Cache flushed."
	case "POST /pause_generation":
		return s.pause(body)
	case "POST /update_weights_from_disk":
		return s.update(body)
	}
	return http.StatusNotFound, object{"detail": "Not Found"}
}

func (s *Server) pause(body []byte) (int, any) {
	var in struct {
		Mode string `json:"mode"`
	}
	if err := json.Unmarshal(body, &in); err != nil || !slices.Contains([]string{"abort", "retract", "in_place"}, in.Mode) {
		return http.StatusBadRequest, object{"message": "mode"}
	}
	if in.Mode == "abort" {
		s.state.Aborted += s.state.Running
		s.state.Running = 0
	}
	s.state.Paused, s.mode = true, in.Mode
	return http.StatusOK, object{"status": "ok"}
}

// update loads whatever is in the folder. A bad header kills the scheduler.
func (s *Server) update(body []byte) (int, any) {
	var in struct {
		Path    string `json:"model_path"`
		Version string `json:"weight_version"`
		Flush   bool   `json:"flush_cache"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return http.StatusBadRequest, object{"message": err.Error()}
	}
	dir, err := safetensorsIn(in.Path)
	if err != nil || len(dir) == 0 {
		return http.StatusBadRequest, object{"success": false, "message": "Failed to get weights iterator: " + in.Path}
	}
	for _, path := range dir {
		f, err := safetensors.Open(path)
		if err != nil {
			s.state.Dead = true
			return http.StatusInternalServerError, nil
		}
		s.state.Weights = f.Metadata[arena.MetaRun] + "." + f.Metadata[arena.MetaVersion]
		_ = f.Close()
	}
	s.state.Files, s.state.Label, s.state.Stale = dir, in.Version, true
	if holds := s.state.Running > 0 && s.mode != "retract"; !in.Flush || holds {
		if !in.Flush {
			return http.StatusOK, object{"success": true}
		}
		return http.StatusBadRequest, object{"success": false, "message": "Weights were updated, but the cache was not flushed"}
	}
	s.state.Stale = false
	return http.StatusOK, object{"success": true, "message": fmt.Sprintf("Succeeded to update model weights. Weight version updated to %s.", in.Version)}
}

func safetensorsIn(dir string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(globbed(dir), "*.safetensors"))
	return all, err
}

// globbed takes a folder's name literally.
func globbed(dir string) string {
	var b []byte
	for _, c := range []byte(dir) {
		if c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(b)
}
