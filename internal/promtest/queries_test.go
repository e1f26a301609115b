package promtest

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

const (
	dashboardFile = "../../deploy/grafana/drydock.json"
	alertsFile    = "../../deploy/prometheus/alerts.yml"
	configFile    = "../../deploy/prometheus/prometheus.yml"
)

// query is one expression and where it stands.
type query struct{ where, expr string }

type dashboard struct {
	Title  string
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	b, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatalf("%s: %v", dashboardFile, err)
	}
	return d
}

type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert       string
			Expr        string
			For         string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

func readAlerts(t *testing.T) rules {
	t.Helper()
	b, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	if err := yaml.Unmarshal(b, &r); err != nil {
		t.Fatalf("%s: %v", alertsFile, err)
	}
	return r
}

// panelQueries are the dashboard's, with its variables filled in as Grafana does.
func panelQueries(t *testing.T) []query {
	t.Helper()
	fill := strings.NewReplacer("$__rate_interval", "1m", "$model", ".*", "$instance", ".*")
	d := readDashboard(t)
	var all []query
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, query{"panel " + p.Title, fill.Replace(target.Expr)})
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, query{"annotation " + a.Name, fill.Replace(a.Expr)})
	}
	return all
}

func alertQueries(t *testing.T) []query {
	t.Helper()
	var all []query
	for _, g := range readAlerts(t).Groups {
		for _, r := range g.Rules {
			all = append(all, query{"alert " + r.Alert, r.Expr})
		}
	}
	return all
}

var (
	metricName = regexp.MustCompile(`\b(drydock|process|go)_[a-z_]+\b`)
	labelName  = regexp.MustCompile(`\b(drydock_[a-z_]+|error_type|service_name)\s*(=~|!~|!=|=)`)
	byClause   = regexp.MustCompile(`\b(?:by|on|ignoring)\s*\(([^)]*)\)`)
	braces     = regexp.MustCompile(`\{[^}]*\}`)
	// set by the scraper, not by the program
	scraped = []string{"instance", "job", "le", ""}
)

// names returns the metrics and the labels that an expression asks for.
func names(expr string) (metrics, labels []string) {
	for _, m := range labelName.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, m[1])
	}
	for _, m := range byClause.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(scraped, l) {
				labels = append(labels, l)
			}
		}
	}
	bare := byClause.ReplaceAllString(braces.ReplaceAllString(expr, ""), "")
	return metricName.FindAllString(bare, -1), labels
}

// TestQueriesAskForWhatThereIs looks up every metric and label of every query in
// a scrape.
func TestQueriesAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	scrape := startProgram(t).scrape(t)
	asked := 0
	for _, q := range append(panelQueries(t), alertQueries(t)...) {
		metrics, labels := names(q.expr)
		for _, m := range metrics {
			asked++
			if !regexp.MustCompile(`(?m)^` + m + `[{ ]`).MatchString(scrape) {
				t.Errorf("%s asks for metric %s, which no program has\n%s", q.where, m, q.expr)
			}
		}
		for _, l := range labels {
			if !strings.Contains(scrape, l+`="`) {
				t.Errorf("%s asks for label %s, which no metric has\n%s", q.where, l, q.expr)
			}
		}
	}
	if asked < 30 {
		t.Fatalf("only %d metrics found in all queries: they are not read as they are written", asked)
	}
}

// TestEachMetricIsShown wants a panel or an alert for whatever is measured.
func TestEachMetricIsShown(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, q := range append(panelQueries(t), alertQueries(t)...) {
		all.WriteString(q.expr + "\n")
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (drydock_\w+) `).FindAllStringSubmatch(startProgram(t).scrape(t), -1) {
		if !strings.Contains(all.String(), m[1]) {
			t.Errorf("%s is in no panel and in no alert", m[1])
		}
	}
}

func TestDashboardIsWellFormed(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	seen := map[int]bool{}
	for i, p := range d.Panels {
		if seen[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q: id %d is used twice or missing", p.Title, p.ID)
		}
		seen[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing", p.Title)
		}
		for _, o := range d.Panels[:i] {
			a, b := p.GridPos, o.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %q and %q overlap", p.Title, o.Title)
			}
		}
	}
	for _, name := range []string{"datasource", "model", "instance"} {
		if !slices.ContainsFunc(d.Templating.List, func(v struct{ Name, Type, Query string }) bool { return v.Name == name }) {
			t.Errorf("no variable %s", name)
		}
	}
}

func TestAlertsSayWhatToDo(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, g := range readAlerts(t).Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] {
				t.Errorf("%s stands twice", r.Alert)
			}
			seen[r.Alert] = true
			if s := r.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s lacks a summary or a description", r.Alert)
			}
		}
	}
}
