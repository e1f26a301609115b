package adminhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func ok(context.Context) error { return nil }

func stuck(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func TestChecks(t *testing.T) {
	t.Parallel()
	bad := func(context.Context) error { return errors.New("no server\nat all") }
	for name, test := range map[string]struct {
		checks map[string]Check
		status int
		body   string
	}{
		"none":  {nil, 200, "ok\n"},
		"well":  {map[string]Check{"nats": ok, "arenas": ok}, 200, "[ok]   arenas\n[ok]   nats\nok\n"},
		"bad":   {map[string]Check{"nats": bad, "arenas": ok}, 503, "[ok]   arenas\n[fail] nats: no server; at all\nnot ok\n"},
		"stuck": {map[string]Check{"nats": stuckForEver(t), "arenas": ok}, 503, "[ok]   arenas\n[fail] nats: no answer in time\nnot ok\n"},
	} {
		s := start(t, Config{Ready: test.checks, CheckTimeout: 50 * time.Millisecond})
		if status, body := get(t, s.URL()+"/readyz"); status != test.status || body != test.body {
			t.Errorf("%s: %d\n%s\nwant %d\n%s", name, status, body, test.status, test.body)
		}
		if status, _ := get(t, s.URL()+"/healthz"); status != 200 {
			t.Errorf("%s: healthz answers %d though only readiness fails", name, status)
		}
	}
}

// stuckForEver ignores its context until the test ends.
func stuckForEver(t *testing.T) Check {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	return func(context.Context) error {
		<-end
		return nil
	}
}

func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x 1\n") })})
	if status, body := get(t, s.URL()+"/metrics"); status != 200 || body != "x 1\n" {
		t.Errorf("%d %q", status, body)
	}
	if status, _ := get(t, start(t, Config{}).URL()+"/metrics"); status != 404 {
		t.Errorf("without metrics: %d", status)
	}
}

func TestPprofOnItsOwnPort(t *testing.T) {
	t.Parallel()
	s := start(t, Config{PprofAddr: "127.0.0.1:0"})
	if status, body := get(t, s.PprofURL()+"/debug/pprof/goroutine?debug=1"); status != 200 || !strings.Contains(body, "goroutine profile") {
		t.Errorf("%d %.80q", status, body)
	}
	if status, _ := get(t, s.URL()+"/debug/pprof/"); status != 404 {
		t.Errorf("the admin port serves profiles: %d", status)
	}
	if start(t, Config{}).PprofURL() != "" {
		t.Error("profiles without being asked for")
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	taken := strings.TrimPrefix(start(t, Config{}).URL(), "http://")
	for _, c := range []Config{{Addr: taken}, {PprofAddr: taken}} {
		if s, err := Start(c); err == nil || !strings.Contains(err.Error(), taken) {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

func TestCloseCutsOff(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	s, err := Start(Config{CheckTimeout: time.Minute, Live: map[string]Check{"slow": func(ctx context.Context) error {
		close(entered)
		return stuck(ctx)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	cut := make(chan error, 1)
	go func() {
		resp, err := client.Get(s.URL() + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		cut <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
}
