package tracing

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// The page that describes the record, the trace and the metrics.
func page(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fields lists the JSON names of a struct, embedded ones included.
func fields(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		if f.Anonymous {
			out = append(out, fields(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}

func TestPageNamesEachField(t *testing.T) {
	t.Parallel()
	text := page(t)
	for _, of := range []any{Record{}, Extension{}, StageRecord{}} {
		for _, name := range fields(reflect.TypeOf(of)) {
			if !strings.Contains(text, "`"+name+"`") || !strings.Contains(text, `"`+name+`":`) {
				t.Errorf("docs/tracing.md does not describe and show %q of %T", name, of)
			}
		}
	}
	for _, s := range stageNames {
		if !strings.Contains(text, "| `"+s+"` |") {
			t.Errorf("docs/tracing.md does not describe stage %s", s)
		}
	}
}

// TestPageShowsARecord reads the example as strictly as can be.
func TestPageShowsARecord(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(page(t))
	if m == nil {
		t.Fatal("no example in docs/tracing.md")
	}
	d := json.NewDecoder(strings.NewReader(m[1]))
	d.DisallowUnknownFields()
	var r Record
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if st := r.Stages.Get(WireTransfer); r.Version != 42 || st.Status != StatusMixed || len(st.Statuses) != 2 {
		t.Errorf("%+v", r)
	}
}

// TestPageNamesEachMetric compares the page's table with a scrape, both ways.
func TestPageNamesEachMetric(t *testing.T) {
	t.Parallel()
	text := page(t)
	scrape := scraped(t, everything)
	described := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(drydock\\.[a-z.]+)` \\| `(drydock_\\w+)` \\|").FindAllStringSubmatch(text, -1) {
		described[m[2]] = true
		if !strings.HasPrefix(m[2], strings.ReplaceAll(m[1], ".", "_")) {
			t.Errorf("%s is not the Prometheus form of %s", m[2], m[1])
		}
	}
	measured := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (drydock_\w+) `).FindAllStringSubmatch(scrape, -1) {
		measured[m[1]] = true
		if !described[m[1]] {
			t.Errorf("docs/tracing.md does not describe %s", m[1])
		}
	}
	for name := range described {
		if !measured[name] {
			t.Errorf("docs/tracing.md describes %s, which is not measured", name)
		}
	}
}
