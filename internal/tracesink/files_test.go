package tracesink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/drydock-rl/drydock/pkg/tracing"
)

// filed makes a process that keeps its spans in files of dir.
func filed(t *testing.T, dir, service, instance string, vars ...string) *tracing.Telemetry {
	t.Helper()
	e, err := Exporter(t.Context(), FilesConfig{Dir: dir, Service: service, Instance: instance})
	if err != nil {
		t.Fatal(err)
	}
	tel, err := tracing.Setup(t.Context(), tracing.SetupConfig{
		Service: service, Instance: instance, Local: []sdktrace.SpanExporter{e},
		Getenv: func(name string) string {
			if i := slices.Index(vars, name); i >= 0 {
				return vars[i+1]
			}
			return ""
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// TestATraceOutOfFiles has a publisher and a receiver keep what they record in one folder, and reads the version's trace
// from there: the same tree that a collector shows.
func TestATraceOutOfFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "made yet")
	pub, rec := filed(t, dir, "drydock-publisher", "0"), filed(t, dir, "drydock-receiver", "0")
	publish(t, pub, 42)
	apply(t, rec, 42)
	for _, p := range []*tracing.Telemetry{pub, rec} {
		if err := p.Shutdown(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := ReadFolders(dir)
	if err != nil || f.Torn != 0 {
		t.Fatalf("%d torn lines, %v", f.Torn, err)
	}
	tr := f.Trace(TraceID(tracing.VersionContext(nonce, 42).TraceID()))
	checkVersion(t, &tr)
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	want := []string{"drydock-publisher.0.1.jsonl", "drydock-receiver.0.1.jsonl"}
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	if !slices.Equal(names, want) {
		t.Errorf("files %q, expected %q", names, want)
	}
}

// TestFilesFollowTheSpecification looks at a line as another program would: ids in hexadecimal, numbers for enumerations.
func TestFilesFollowTheSpecification(t *testing.T) {
	t.Parallel()
	b := builder{id: TraceID{0xab, 0xcd}}
	line, err := encodeLine([]*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{
		b.span(nil, `"traceId":"AAAA" in a name`, 0, 5), b.span(&tracepb.Span{SpanId: []byte{1, 2, 3, 4, 5, 6, 7, 8}}, "child", 1, 2),
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct{ TraceID, SpanID, ParentSpanID, Name, StartTimeUnixNano string }
			}
		}
	}
	if err := json.Unmarshal(line, &got); err != nil || strings.Count(string(line), "\n") != 1 {
		t.Fatalf("%v in %s", err, line)
	}
	spans := got.ResourceSpans[0].ScopeSpans[0].Spans
	if spans[0].TraceID != "abcd"+strings.Repeat("0", 28) || spans[0].SpanID != "0000000000000001" || spans[1].ParentSpanID != "0102030405060708" {
		t.Errorf("ids %+v", spans)
	}
	if spans[0].Name != `"traceId":"AAAA" in a name` || spans[0].StartTimeUnixNano == "" {
		t.Errorf("%+v", spans[0])
	}
	back, err := decodeLine(line)
	if err != nil || !bytes.Equal(back[0].GetScopeSpans()[0].GetSpans()[0].GetTraceId(), b.id[:]) {
		t.Errorf("read back: %v, %v", back, err)
	}
}

// TestFilesAreBounded writes far more than the files may hold, over several lives of the process.
func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "drydock-receiver.a.b.1.jsonl") // of another instance, whose name begins alike
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const maxBytes, maxFiles = 4096, 3
	b := builder{}
	for life := range 4 {
		f, err := NewFiles(FilesConfig{Dir: dir, Service: "drydock-receiver", Instance: "a", MaxBytes: maxBytes, MaxFiles: maxFiles})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			b.id[0], b.id[1] = byte(life+1), byte(i)
			err := f.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{b.span(nil, "refit", 0, 1)}}}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	names, _ := filepath.Glob(filepath.Join(dir, "drydock-receiver.a.[0-9]*.jsonl"))
	if len(names) != maxFiles {
		t.Errorf("%d files, expected %d: %v", len(names), maxFiles, names)
	}
	for _, name := range names {
		if st, err := os.Stat(name); err != nil || st.Size() > maxBytes {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another instance's file: %v", err)
	}
	f, err := ReadFolders(dir)
	if err != nil {
		t.Fatal(err)
	}
	if last := f.Trace(TraceID{4, 59}); len(last.Spans) != 1 {
		t.Errorf("the last span is not there")
	}
}

// TestTornLinesAreCounted cuts a file off in the middle of a line, as a killed process or a full disk does.
func TestTornLinesAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tel := filed(t, dir, "s", "i")
	publish(t, tel, 1)
	if err := tel.Shutdown(within(t)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s.i.1.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(whole) + string(whole[:len(whole)/2]), string(whole) + "{}\nnot JSON\n", "\x00\xff\n" + string(whole)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := ReadFolders(dir)
		if err != nil || f.Torn != 1 {
			t.Fatalf("%d torn lines, %v", f.Torn, err)
		}
		if tr := f.Trace(TraceID(tracing.VersionContext(nonce, 1).TraceID())); len(tr.Spans) == 0 {
			t.Error("the whole lines are lost too")
		}
	}
}

// TestFilesHonourSampling keeps nothing of a version that was sampled out.
func TestFilesHonourSampling(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tel := filed(t, dir, "s", "i", "OTEL_TRACES_SAMPLER", "always_off")
	publish(t, tel, 1)
	if err := tel.Shutdown(within(t)); err != nil {
		t.Fatal(err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 0 {
		t.Errorf("files %v", names)
	}
}

// TestAFullDiskIsNoFailureOfTheRefit writes to a place where nothing can be written.
func TestAFullDiskIsNoFailureOfTheRefit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "gone")
	tel := filed(t, dir, "s", "i")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	publish(t, tel, 1)
	if err := tel.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
}

func TestFilesAreDescribed(t *testing.T) {
	t.Parallel()
	for _, c := range []FilesConfig{{}, {Dir: "d", Service: "s"}, {Dir: "d", Service: "s", Instance: "i", MaxBytes: -1}} {
		if _, err := NewFiles(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if got := fileWord("host/a b.c"); got != "host_a_b_c" {
		t.Errorf("an instance's part of a file's name: %s", got)
	}
	if _, err := ReadFolders(filepath.Join(t.TempDir(), "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func FuzzDecodeLine(f *testing.F) {
	f.Add([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00","spanId":"1234567890abcdef","name":"x"}]}]}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		batches, err := decodeLine(line)
		if err != nil {
			return
		}
		again, err := encodeLine(batches)
		if err != nil {
			return
		}
		if _, err := decodeLine(again); err != nil {
			t.Fatalf("%v in %s", err, again)
		}
	})
}

// BenchmarkUpload is what a span costs that is kept in a file, on the batcher's goroutine.
func BenchmarkUpload(b *testing.B) {
	f, err := NewFiles(FilesConfig{Dir: b.TempDir(), Service: "s", Instance: "i"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Stop(b.Context()) }()
	build := builder{id: TraceID{1}}
	var spans []*tracepb.Span
	for i := range 100 {
		spans = append(spans, build.span(nil, fmt.Sprint("span ", i), 0, 1))
	}
	batch := []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}}}}
	b.ReportAllocs()
	for b.Loop() {
		if err := f.UploadTraces(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/span")
}
