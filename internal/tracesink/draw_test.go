package tracesink

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden drawings")

// refit is a whole version: two publishers, a receiver that retries a read and
// waits before it applies, and one that fails.
func refit(b *builder) []*tracepb.ResourceSpans {
	root := b.span(nil, "version 42", 0, 900, num("drydock.version", 42), str("drydock.model", "qwen"))
	pub0 := b.span(root, "publish", 1, 120, num("drydock.rank", 0))
	digest := b.span(pub0, "digest", 2, 90, num("drydock.bytes", 12_582_912))
	upload := b.span(pub0, "send refit.qwen", 90, 119, str("messaging.destination.name", "refit.qwen.v.1.42.t.0"))
	pub1 := b.span(root, "publish", 3, 130, num("drydock.rank", 1), num("drydock.version", 42))

	cycle := b.span(root, "refit", 140, 880, num("drydock.rank", 0), str("drydock.outcome", "applied"), str("drydock.backend", "drydock"))
	cycle.Links = []*tracepb.Span_Link{{TraceId: bytes.Repeat([]byte{0xab}, 16), SpanId: bytes.Repeat([]byte{1}, 8)}}
	stage := b.span(cycle, "refit.stage", 140, 420)
	discover := b.span(stage, "control_discovery", 140, 160)
	wire := b.span(stage, "wire_transfer", 165, 400, num("drydock.bytes", 1_234_567_890))
	read := b.span(wire, "read", 166, 390, num("drydock.source.rank", 0), str("drydock.transport", "tcp"), num("drydock.segments", 17), num("drydock.bytes", 999))
	read.Events = []*tracepb.Span_Event{{Name: "drydock.retry", TimeUnixNano: at(200), Attributes: read.GetAttributes()[:1]}}
	apply := b.span(cycle, "refit.apply", 860, 880)
	install := b.span(apply, "installation", 861, 879)

	failed := fail(b.span(root, "refit", 141, 300, num("drydock.rank", 1), str("drydock.outcome", "failed")), "stage: read of source 1: connection reset")
	verify := fail(b.span(failed, "receive_sync", 290, 300), "tile 7 of model.embed: digest differs\nshould be one line")
	return []*tracepb.ResourceSpans{
		from("drydock-publisher", "0", root, pub0, digest, upload),
		from("drydock-publisher", "publisher-1", pub1),
		from("drydock-receiver", "0", cycle, stage, discover, wire, read, apply, install),
		from("drydock-receiver", "1", failed, verify),
	}
}

// lost is the same trace without the spans of rank 0, and with hostile names.
func lost(b *builder) []*tracepb.ResourceSpans {
	all := refit(b)[1:]
	all[0].ScopeSpans[0].Spans[0].Name = "publish \x1b[2Jwiped"
	return all
}

func loop(b *builder) []*tracepb.ResourceSpans {
	x, y := b.span(nil, "x", 0, 10), b.span(nil, "y", 1, 9)
	x.ParentSpanId, y.ParentSpanId = y.GetSpanId(), x.GetSpanId()
	return []*tracepb.ResourceSpans{from("liar", "", x, y)}
}

func instant(b *builder) []*tracepb.ResourceSpans {
	return []*tracepb.ResourceSpans{from("drydock-receiver", "0", b.span(nil, "moment", 5, 5))}
}

func TestDraw(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make func(*builder) []*tracepb.ResourceSpans
		o    DrawOptions
	}{
		"refit":   {refit, DrawOptions{}},
		"lost":    {lost, DrawOptions{}},
		"cut":     {refit, DrawOptions{MaxRows: 5, MaxName: 12, Bar: 8}},
		"loop":    {loop, DrawOptions{}},
		"instant": {instant, DrawOptions{}},
		"empty":   {func(*builder) []*tracepb.ResourceSpans { return nil }, DrawOptions{}},
	} {
		b := &builder{id: TraceID{0x42}}
		s := newStore(10, 100)
		s.add(test.make(b))
		tr := s.trace(b.id)
		var got bytes.Buffer
		if err := tr.Draw(&got, test.o); err != nil {
			t.Fatal(err)
		}
		golden(t, name, got.String())
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (rewrite with -rewrite)\ngot\n%s\nwant\n%s", path, got, want)
	}
}

// TestDrawDeepChain draws a chain so long that indenting all of it would not end.
func TestDrawDeepChain(t *testing.T) {
	t.Parallel()
	const depth = 20_000
	tr := Trace{Spans: make([]Span, depth)}
	for i := range tr.Spans {
		tr.Spans[i] = Span{ID: chainID(i + 1), Parent: chainID(i), Name: "x"}
	}
	var out strings.Builder
	if err := tr.Draw(&out, DrawOptions{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "… and 19000 more\n") {
		t.Errorf("ends with %q", out.String()[max(0, out.Len()-80):])
	}
}

func chainID(i int) SpanID {
	return SpanID{5: byte(i >> 16), 6: byte(i >> 8), 7: byte(i)}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0B", 999: "999B", 1000: "1kB", 1_234_567: "1.23MB", 999_999: "1MB", 12_582_912: "12.6MB", 5e15: "5PB", 5e18: "5e+03PB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
