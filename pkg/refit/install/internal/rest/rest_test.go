package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/pkg/refit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h http.HandlerFunc) *Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &Server{URL: s.URL, APIKey: "k", Client: s.Client()}
}

func TestCall(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var in map[string]int
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("body %v (%v), authorization %q", in, err, r.Header.Get("Authorization"))
		}
		w.Write([]byte(`{"b":2}`)) //nolint:errcheck // the client sees it
	})
	var out struct{ B int }
	if err := s.Call(t.Context(), time.Minute, http.MethodPost, "/x", map[string]int{"a": 1}, &out); err != nil || out.B != 2 {
		t.Errorf("got %+v, %v", out, err)
	}
}

// TestErrorText: each server says it in its own way.
func TestErrorText(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"error":{"message":"m"}}`:           "m",
		`{"error":"e"}`:                       `"e"`,
		`{"detail":[1]}`:                      `[1]`,
		`{"success":false,"message":"m"}`:     "m",
		"text\n":                              "text",
		`{"x":1}`:                             `{"x":1}`,
		strings.Repeat("x", 2*maxText):        strings.Repeat("x", maxText) + "…",
		`{"error":{"message":"","code":500}}`: `{"message":"","code":500}`,
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			w.Write([]byte(body)) //nolint:errcheck // the client sees it
		})
		err := s.Call(t.Context(), time.Minute, http.MethodGet, "/x", nil, nil)
		var e *Error
		if !errors.As(err, &e) || e.Status != 400 || e.Text != want || refit.ClassOf(Marked(err)) != refit.InstallRefused {
			t.Errorf("%.40q: got %v, want %q", body, err, want)
		}
	}
}

func TestSilence(t *testing.T) {
	t.Parallel()
	gone := serve(t, nil)
	gone.URL = "http://127.0.0.1:1"
	dead := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	cut := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for name, s := range map[string]*Server{"gone": gone, "dead": dead, "cut": cut, "slow": slow} {
		err := s.Call(t.Context(), 100*time.Millisecond, http.MethodGet, "/x", nil, nil)
		if !Silent(err) || refit.ClassOf(Marked(err)) != refit.EngineUnreachable {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := slow.Call(t.Context(), 10*time.Millisecond, http.MethodGet, "/x", nil, nil)
	if !strings.Contains(err.Error(), "no answer within 10ms") {
		t.Errorf("a timeout says %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := slow.Call(ctx, time.Minute, http.MethodGet, "/x", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call says %v", err)
	}
}

func TestNoJSON(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }) //nolint:errcheck // the client sees it
	var out struct{}
	err := s.Call(t.Context(), time.Minute, http.MethodGet, "/x", nil, &out)
	if err == nil || Silent(err) || !strings.Contains(err.Error(), "<html>") {
		t.Errorf("got %v", err)
	}
}

func TestBase(t *testing.T) {
	t.Parallel()
	if got, err := Base("http://h:1/"); got != "http://h:1" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"", "h:1", "ftp://h", "http://", "http://%"} {
		if _, err := Base(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
