package promtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// deadline bounds each wait for the real Prometheus.
const deadline = 60 * time.Second

// tool returns the path of a program of Prometheus, or skips.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("DRYDOCK_PROMETHEUS")
	if dir == "" {
		t.Skip("DRYDOCK_PROMETHEUS names no folder with prometheus and promtool: see scripts/test-prometheus.sh")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("DRYDOCK_PROMETHEUS: %v", err)
	}
	return path
}

func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool(t, "promtool"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolAcceptsTheScrape(t *testing.T) {
	t.Parallel()
	tool(t, "promtool")
	// Its lint is for Drydock's own metrics; go_ and process_ ones are the library's.
	var own strings.Builder
	for line := range strings.Lines(startProgram(t).scrape(t)) {
		if strings.Contains(line, "drydock_") {
			own.WriteString(line)
		}
	}
	promtool(t, own.String(), "check", "metrics")
}

func TestPromtoolAcceptsTheFiles(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "rules", alertsFile)
	promtool(t, "", "check", "config", configFile)
}

// TestAlertsFire runs the scenarios of testdata/alerts_test.yml.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool(t, "", "test", "rules", "testdata/alerts_test.yml")
}

// TestPrometheusAnswersEachQuery has a real Prometheus scrape a program and asks
// it everything that a panel or an alert asks.
func TestPrometheusAnswersEachQuery(t *testing.T) {
	t.Parallel()
	bin := tool(t, "prometheus")
	p := startProgram(t)
	base := startPrometheus(t, bin, p.admin.URL())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

	// Until the refits of some scrapes are in: rates need two samples, of changes.
	wait(t, "scrapes of several versions", func() bool {
		p.refit(t.Context())
		r, err := ask(t.Context(), client, base, "changes(drydock_version_served[1m])")
		return err == nil && r.value() >= 3
	})
	for _, q := range panelQueries(t) {
		r, err := ask(t.Context(), client, base, q.expr)
		switch {
		case err != nil:
			t.Errorf("%s: %v\n%s", q.where, err, q.expr)
		case len(r.Data.Result) == 0:
			t.Errorf("%s: no data\n%s", q.where, q.expr)
		}
	}
	for _, q := range alertQueries(t) {
		if _, err := ask(t.Context(), client, base, q.expr); err != nil {
			t.Errorf("%s: %v\n%s", q.where, err, q.expr)
		}
	}
	r, err := ask(t.Context(), client, base, `up{job="drydock-receiver"}`)
	if err != nil || r.value() != 1 {
		t.Errorf("up is %v, %v", r.value(), err)
	}
}

type answer struct {
	Status, Error string
	Data          struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
}

func (a *answer) value() float64 {
	var f float64
	if len(a.Data.Result) > 0 {
		_, _ = fmt.Sscan(fmt.Sprint(a.Data.Result[0].Value[1]), &f)
	}
	return f
}

func ask(ctx context.Context, c *http.Client, base, expr string) (answer, error) {
	var a answer
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/query?query="+url.QueryEscape(expr), http.NoBody)
	if err != nil {
		return a, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("%s: %s", resp.Status, b)
	}
	if a.Status != "success" {
		return a, fmt.Errorf("%s: %s", a.Status, a.Error)
	}
	return a, nil
}

// startPrometheus scrapes target four times a second.
func startPrometheus(t *testing.T, bin, target string) (base string) {
	t.Helper()
	dir, addr := t.TempDir(), freeAddr(t)
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"global":{"scrape_interval":"250ms","scrape_timeout":"250ms","evaluation_interval":"1s"},"rule_files":[%q],
		"scrape_configs":[{"job_name":"drydock-receiver","static_configs":[{"targets":[%q]}]}]}`, rules, strings.TrimPrefix(target, "http://"))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(bin, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil && t.Failed() {
			t.Logf("prometheus: %v\n%s", err, &log)
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	wait(t, "prometheus to be ready", func() bool {
		resp, err := client.Get("http://" + addr + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return "http://" + addr
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// wait asks every 100 ms.
func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	end := time.After(deadline)
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited %v for %s", deadline, what)
		case <-t.Context().Done():
			t.Fatal("test ended while waiting for " + what)
		}
	}
}
