package integration

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// whenItFails are metrics, and a label, that have no sample while nothing goes wrong; package promtest and the tests of package tracing
// have them.
var whenItFails = map[string]bool{"drydock_failures_total": true, "drydock_read_retries_total": true, "drydock_retry_reason": true}

// TestProgramsMeasureWhatIsAskedFor scrapes a real publisher and a real receiver after a refit. Whatever a panel of the
// dashboard or an alert asks for, one of them must have: a metric that nobody sets is a panel that stays empty.
func TestProgramsMeasureWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	publishers := w.publishers("--versions", "2", "--admin", "127.0.0.1:0")
	r := w.receiver("host", "--admin", "127.0.0.1:0")
	r.serves(1)
	w.open(1)
	r.serves(2)
	var scrapes strings.Builder
	for _, p := range []*process{publishers[0], r.process} {
		scrapes.WriteString(p.scrape())
	}
	have := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(drydock_[a-z_]+)[{ ]`).FindAllStringSubmatch(scrapes.String(), -1) {
		have[m[1]] = true
	}
	asked := 0
	for _, file := range []string{"../deploy/grafana/drydock.json", "../deploy/prometheus/alerts.yml"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// A metric is followed by its labels, by a range, or by what is done with it; a label by an operator or a comma.
		for _, m := range regexp.MustCompile(`\b(drydock_[a-z_]+)(\{|\[|\)| [<>=+*/-])`).FindAllStringSubmatch(string(b), -1) {
			asked++
			if name := m[1]; !have[name] && !whenItFails[name] && !isLabel(name, scrapes.String()) {
				t.Errorf("%s asks for %s, which neither program has", file, name)
			}
		}
	}
	if asked < 30 {
		t.Fatalf("only %d metrics found in the files: they are not read as they are written", asked)
	}
	for _, sample := range []string{
		`drydock_arenas{drydock_arena_state="serving",drydock_model="` + w.model + `"} 1`,
		`drydock_arenas{drydock_arena_state="quarantined",drydock_model="` + w.model + `"} 0`,
		`drydock_breaker_sources{drydock_breaker_state="closed",drydock_model="` + w.model + `"} 2`,
		`drydock_staging_usage_bytes{drydock_model="` + w.model + `"} 0`,
		`drydock_leases{drydock_model="` + w.model + `"} 0`,
		`drydock_version_lag{drydock_model="` + w.model + `"} 0`,
		`drydock_plan_requests_total{drydock_model="` + w.model + `",drydock_plan_result="miss"} 1`,
	} {
		if !strings.Contains(scrapes.String(), "\n"+sample+"\n") {
			name, _, _ := strings.Cut(sample, "{")
			t.Errorf("no sample %s; there is\n%s", sample, strings.Join(regexp.MustCompile(`(?m)^`+name+`\{.*$`).FindAllString(scrapes.String(), -1), "\n"))
		}
	}
	r.leavesCleanly(true)
	leave(t, publishers...)
}

// isLabel says whether a name is that of a label: it stands before an equals sign in the scrape.
func isLabel(name, scrape string) bool { return strings.Contains(scrape, name+`="`) }

// scrape asks a process that was started with --admin for its metrics.
func (p *process) scrape() string {
	p.t.Helper()
	address := regexp.MustCompile(`msg="admin server".* url=(\S+)`)
	var url string
	eventually(p.t, p.name+" says where its metrics are", func() (bool, string) {
		m := address.FindStringSubmatch(strings.Join(p.said(), "\n"))
		if m != nil {
			url = m[1]
		}
		return m != nil, p.lastSaid()
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get(url + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return string(b)
}

// TestTracesOutOfFolders draws a version that was served, from what real processes kept, when all of them and the server
// are gone.
func TestTracesOutOfFolders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{receivers: 1})
	dir := t.TempDir()
	keeping := func(name, program string, args ...string) *process {
		return startWith(t, name, []string{"MX_REFIT_TIMING_STDOUT=1"}, program, append(args, "--trace-dir", dir)...)
	}
	var publishers []*process
	for rank := range w.trainers {
		publishers = append(publishers, keeping("publisher", "publisher", w.publisherArgs(rank, "--versions", "1")...))
	}
	r := &receiver{process: keeping("host", "receiver", w.receiverArgs("host", everyRank(w.tp))...), w: w}
	r.serves(1)
	r.leavesCleanly(true)
	leave(t, publishers...)
	w.server.Shutdown()
	drawn := start(t, "refitctl", "refitctl", "trace", "latest", "--dir", dir)
	if code := drawn.ended(); code != 0 {
		t.Fatalf("exit code %d: %s", code, drawn.lastSaid())
	}
	for _, words := range []string{w.model + ", run 1, version 1", "refit version", "publish", "wire_transfer", "installation", "spans of 3 processes"} {
		if !strings.Contains(drawn.wrote(), words) {
			t.Errorf("the drawing has no %q:\n%s", words, drawn.wrote())
		}
	}
}
