package vllm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
	"github.com/drydock-rl/drydock/pkg/refit/install/installtest"
	"github.com/drydock-rl/drydock/pkg/refit/install/vllm"
	"github.com/drydock-rl/drydock/pkg/refit/install/vllm/vllmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is an engine with its installer, and a folder of arenas.
type bench struct {
	t    *testing.T
	e    *vllmtest.Engine
	inst *vllm.Installer
	root string
}

func newBench(t *testing.T, ranks int, change ...func(*vllm.Config)) *bench {
	t.Helper()
	b := &bench{t: t, e: vllmtest.New(t, ranks), root: t.TempDir()}
	b.inst = b.installer(change...)
	return b
}

func (b *bench) installer(change ...func(*vllm.Config)) *vllm.Installer {
	b.t.Helper()
	cfg := vllm.Config{URL: b.e.URL(), Owner: "receiver-a", CallTimeout: 5 * time.Second, SettleTimeout: 5 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	inst, err := vllm.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return inst
}

// version writes the arenas of a version.
func (b *bench) version(n uint64) refit.Installation {
	b.t.Helper()
	in := refit.Installation{Model: "org/model", Key: messages.Key{Run: 7, Version: n}, Dir: filepath.Join(b.root, fmt.Sprintf("slot-%d", n))}
	for r := range b.e.State().Weights {
		in.Ranks = append(in.Ranks, r)
		in.Files = append(in.Files, filepath.Join(in.Dir, fmt.Sprintf("rank-%d.safetensors", r)))
	}
	writeArenas(b.t, in)
	return in
}

func writeArenas(t *testing.T, in refit.Installation) {
	t.Helper()
	if err := os.MkdirAll(in.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for k, rank := range in.Ranks {
		writeArena(t, in.Files[k], in, rank)
	}
}

func writeArena(t *testing.T, path string, in refit.Installation, rank int) {
	t.Helper()
	l, err := safetensors.NewLayout([]safetensors.Spec{{Name: "w", DType: "U8", Shape: []int64{4}}}, map[string]string{
		arena.MetaModel: in.Model, arena.MetaRun: strconv.FormatUint(in.Key.Run, 10), arena.MetaVersion: strconv.FormatUint(in.Key.Version, 10),
		arena.MetaRank: strconv.Itoa(rank), arena.MetaLayout: "layout-" + strconv.Itoa(rank),
	}, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(l.Header, 1, 2, 3, 4), 0o600); err != nil {
		t.Fatal(err)
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (b *bench) take(n uint64) refit.Report {
	b.t.Helper()
	report, err := b.inst.Install(bounded(b.t), b.version(n))
	if err != nil {
		b.t.Fatalf("install version %d: %v", n, err)
	}
	b.serves(fmt.Sprintf("7.%d", n))
	return report
}

// serves checks that the engine answers, with one whole version that it names rightly.
func (b *bench) serves(label string) {
	b.t.Helper()
	s := b.e.State()
	want := vllmtest.State{Label: label, Owner: s.Owner, Aborted: s.Aborted, Files: s.Files}
	for range s.Weights {
		if label == "default" {
			want.Weights = append(want.Weights, "checkpoint")
		} else {
			want.Weights = append(want.Weights, label)
		}
	}
	if fmt.Sprint(s) != fmt.Sprint(want) {
		b.t.Errorf("the engine is %+v, want %+v", s, want)
	}
}

// fails installs what must fail with a class and say something.
func (b *bench) fails(in refit.Installation, class refit.Class, says string) {
	b.t.Helper()
	_ = b.failure(in, class, says)
}

// failure is fails, for those who look at the error too.
func (b *bench) failure(in refit.Installation, class refit.Class, says string) error {
	b.t.Helper()
	_, err := b.inst.Install(bounded(b.t), in)
	if err == nil || refit.ClassOf(err) != class || !strings.Contains(err.Error(), says) {
		b.t.Fatalf("install %s: class %s, error %v; want %s with %q", in.Key, refit.ClassOf(err), err, class, says)
	}
	return err
}

func TestConformance(t *testing.T) {
	installtest.Conformance(t, func(t *testing.T) installtest.Bench {
		b := newBench(t, 1, func(c *vllm.Config) { c.SettleTimeout = 300 * time.Millisecond })
		return installtest.Bench{
			Installer: refit.InstallerFunc(func(ctx context.Context, in refit.Installation) (refit.Report, error) {
				if len(in.Ranks) != len(b.e.State().Weights) {
					b.e.Resize(len(in.Ranks))
				}
				writeArenas(t, in) // the suite's files are text
				return b.inst.Install(ctx, in)
			}),
			Served: func() installtest.Served {
				s := b.e.State()
				return installtest.Served{Key: s.Label, Files: s.Files}
			},
			Refuse: func() { b.e.Rank(0).FailApply = 1 },
			Vanish: func() func() { b.e.Kill(); return b.e.Start },
			Stall: func() func() {
				stalled := make(chan struct{})
				b.e.At("POST /finish_weight_update", vllmtest.Fault{Before: func() { <-stalled }})
				b.e.At("rpc drydock_abort", vllmtest.Fault{Before: func() { <-stalled }}) // behind it
				return func() { close(stalled) }
			},
			Pauses: true,
		}
	})
}

// TestOrder: nothing is paused before every rank has checked its file, and nothing is named before every rank has it.
func TestOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.take(1)
	first := []string{
		"init_weight_transfer_engine", "start_weight_update", "update_weights", "pause", "finish_weight_update",
		"update_weight_version", "reset_prefix_cache", "resume", "rpc drydock_done",
	}
	if got := b.e.Calls(); !slices.Equal(got, first) {
		t.Errorf("calls %q, want %q", got, first)
	}
	b.take(2)
	if got := b.e.Calls()[len(first):]; !slices.Equal(got, first[1:]) {
		t.Errorf("calls of the second version %q, want %q", got, first[1:])
	}
	b.take(2)
	if got := b.e.Calls()[2*len(first)-1:]; len(got) != 0 {
		t.Errorf("the same version again was not left alone: %q", got)
	}
}

// TestEveryCallFails: whichever call of an installation fails, however it fails, the engine answers with the old version
// afterwards, and takes the new one at the next try.
func TestEveryCallFails(t *testing.T) {
	t.Parallel()
	for _, call := range []string{
		"GET /server_info", "GET /get_world_size", "GET /weight_info", "GET /is_paused", "rpc drydock_status",
		"POST /start_weight_update", "POST /update_weights", "POST /pause", "POST /finish_weight_update",
		"POST /update_weight_version", "POST /reset_prefix_cache", "POST /resume",
	} {
		for name, f := range map[string]vllmtest.Fault{
			"error": {Status: 500}, "gone": {Status: 503}, "answer lost": {Drop: true}, "lie": {Lie: true},
		} {
			if call == "POST /start_weight_update" && f.Lie {
				continue // an update that is not open raises in every worker: no engine is known to lie so
			}
			t.Run(call+" "+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 2)
				b.take(1)
				b.inst = b.installer() // which looks at the server anew
				b.e.Run(3)
				b.e.At(call, f)
				_, err := b.inst.Install(bounded(t), b.version(2))
				if err == nil {
					b.serves("7.2") // a lie about something that was not needed, or was found out and done again
				} else {
					b.serves("7.1")
				}
				b.take(2)
				b.take(3)
			})
		}
	}
}

// TestKilledAtEveryCall: the receiver dies before the engine has answered. The next life settles what it left, whatever
// version it brings.
func TestKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	for _, call := range []string{
		"POST /start_weight_update", "POST /update_weights", "POST /pause", "POST /finish_weight_update",
		"POST /update_weight_version", "POST /reset_prefix_cache", "POST /resume", "rpc drydock_done",
	} {
		for _, next := range []uint64{1, 2, 3} {
			t.Run(fmt.Sprintf("%s then version %d", call, next), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 2, func(c *vllm.Config) { c.SettleTimeout = time.Nanosecond }) // a dead one settles nothing
				b.take(1)
				two := b.version(2)
				ctx, kill := context.WithCancel(bounded(t))
				b.e.At(call, vllmtest.Fault{Before: kill})
				if _, err := b.inst.Install(ctx, two); err == nil && call != "rpc drydock_done" {
					t.Fatal("installed by a dead installer")
				}
				b.inst = b.installer()
				b.take(next)
			})
		}
	}
}

// TestRecover settles without a version to install, and leaves somebody else's pause alone.
func TestRecover(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, func(c *vllm.Config) { c.SettleTimeout = time.Nanosecond })
	b.take(1)
	ctx, kill := context.WithCancel(bounded(t))
	b.e.At("POST /update_weight_version", vllmtest.Fault{Before: kill})
	if _, err := b.inst.Install(ctx, b.version(2)); refit.ClassOf(err) != refit.EngineUnknown {
		t.Fatalf("class %s: %v", refit.ClassOf(err), err)
	}
	b.inst = b.installer()
	if err := b.inst.Recover(bounded(t)); err != nil {
		t.Fatal(err)
	}
	b.serves("7.2") // every rank had it
	b.e.Pause()
	if err := b.inst.Recover(bounded(t)); !errors.Is(err, vllm.ErrPaused) || !b.e.State().Paused {
		t.Errorf("got %v of an engine that somebody else paused", err)
	}
}

// TestOneRankFails: the rank itself goes back; the other, which had gone forward, is taken back.
func TestOneRankFails(t *testing.T) {
	t.Parallel()
	for _, rank := range []int{0, 1} {
		for _, from := range []string{"checkpoint", "version"} {
			t.Run(fmt.Sprintf("rank %d, from a %s", rank, from), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 2)
				old := "default"
				if from == "version" {
					b.take(1)
					old = "7.1"
				}
				b.e.Rank(rank).FailApply = 1
				b.fails(b.version(2), refit.InstallRefused, fmt.Sprintf("rank %d is undone", rank))
				b.serves(old)
				b.take(2)
			})
		}
	}
}

// TestBroken: where going back fails too, the engine stays paused, and the next version mends it.
func TestBroken(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.take(1)
	b.e.Rank(1).FailApply, b.e.Rank(1).FailUndo = 1, true
	err := b.failure(b.version(2), refit.EngineUnknown, "no whole version")
	if s := b.e.State(); !errors.Is(err, vllm.ErrBroken) || !s.Paused || s.Weights[1] != "torn" {
		t.Fatalf("%v: the engine is %+v, want it paused", err, s)
	}
	b.inst = b.installer()
	if err := b.inst.Recover(bounded(t)); !errors.Is(err, vllm.ErrBroken) || !b.e.State().Paused {
		t.Errorf("recover: %v, want %v and a paused engine", err, vllm.ErrBroken)
	}
	b.e.Rank(1).FailApply = 1
	b.fails(b.version(3), refit.EngineUnknown, "no whole version")
	if !b.e.State().Paused {
		t.Error("an engine of two versions answers requests")
	}
	b.take(1) // the way back is as good as the way forward
	b.take(3)
}

// TestBadFiles: what is wrong with a file is found before the engine stops, by this side or by the rank.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, in refit.Installation)
		says  string
	}{
		{"missing", func(t *testing.T, in refit.Installation) { os.Remove(in.Files[1]) }, "no such file"},
		{"truncated", func(t *testing.T, in refit.Installation) { truncate(t, in.Files[1]) }, "rank 1"},
		{"not sealed", func(t *testing.T, in refit.Installation) {
			if err := os.WriteFile(in.Files[0], make([]byte, 512), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "rank 0"},
		{"swapped", func(t *testing.T, in refit.Installation) { writeArena(t, in.Files[0], in, 1) }, `drydock.rank "1"`},
		{"another version", func(t *testing.T, in refit.Installation) {
			in.Key.Version++
			writeArena(t, in.Files[1], in, 1)
		}, `drydock.version "3"`},
		{"another model", func(t *testing.T, in refit.Installation) {
			in.Model = "other"
			writeArena(t, in.Files[1], in, 1)
		}, `drydock.model "other"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2)
			b.take(1)
			before := len(b.e.Calls())
			in := b.version(2)
			c.spoil(t, in)
			b.fails(in, refit.InstallRefused, c.says)
			b.serves("7.1")
			if got := b.e.Calls()[before:]; slices.Contains(got, "pause") {
				t.Errorf("the engine was paused: %q", got)
			}
			b.take(2)
		})
	}
}

func truncate(t *testing.T, path string) {
	t.Helper()
	if err := os.Truncate(path, 30); err != nil {
		t.Error(err)
	}
}

// TestFileChangesAfterTheLook: the rank looks too, and its refusal pauses nothing.
func TestFileChangesAfterTheLook(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	in := b.version(1)
	b.e.At("POST /update_weights", vllmtest.Fault{Before: func() { truncate(t, in.Files[1]) }})
	b.fails(in, refit.InstallRefused, "rank 1 is refused, has its checkpoint")
	b.serves("default")
	b.take(1)
}

func TestRanksMustFit(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	in := b.version(1)
	one := in
	one.Ranks, one.Files = in.Ranks[:1], in.Files[:1]
	b.fails(one, refit.InstallRefused, "2 workers of tensor parallel 2, the version has files of 1 ranks")
	one.Ranks, one.Files = in.Ranks[1:], in.Files[1:]
	b.fails(one, refit.InstallRefused, "none for rank 0")
	one.Peers = []refit.Member{{Name: "b", Ranks: []int{0}, Files: in.Files[:1]}}
	b.fails(one, refit.InstallRefused, "one receiver must have all ranks")
	b.e.DP = 2
	b.fails(b.version(2), refit.InstallRefused, "data parallel")
}

func TestPausedBySomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.take(1)
	b.e.Pause()
	if err := b.failure(b.version(2), refit.EngineUnreachable, "paused by somebody else"); !errors.Is(err, vllm.ErrPaused) {
		t.Error(err)
	}
	if s := b.e.State(); !s.Paused || s.Label != "7.1" {
		t.Errorf("the engine is %+v: its pause was not ours to end", s)
	}
	b.e.Resume()
	b.e.At("POST /update_weights", vllmtest.Fault{Before: b.e.Pause}) // between the look and our pause
	b.fails(b.version(2), refit.EngineUnreachable, "paused by somebody else")
	b.e.Resume()
	b.take(2)
}

func TestTwoReceivers(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.take(1)
	other := b.installer(func(c *vllm.Config) { c.Owner = "receiver-b" })
	if _, err := other.Install(bounded(t), b.version(2)); !errors.Is(err, vllm.ErrOwned) || refit.ClassOf(err) != refit.InstallRefused ||
		!strings.Contains(err.Error(), "receiver-a") {
		t.Fatalf("second receiver: %v", err)
	}
	b.serves("7.1")
	bold := b.installer(func(c *vllm.Config) { c.Owner = "receiver-b"; c.TakeOver = true })
	if _, err := bold.Install(bounded(t), b.version(2)); err != nil {
		t.Fatal(err)
	}
	b.fails(b.version(3), refit.InstallRefused, "receiver-b")
	b.serves("7.2")
}

// TestForeignServer: a server without the back end is asked nothing that would raise in its workers.
func TestForeignServer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*vllmtest.Engine){
		"no dev mode":        func(e *vllmtest.Engine) { e.Dev = false },
		"no weight transfer": func(e *vllmtest.Engine) { e.Backend = "" },
		"another one's":      func(e *vllmtest.Engine) { e.Backend = "nccl" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2)
			change(b.e)
			if err := b.failure(b.version(1), refit.InstallRefused, "back end"); !errors.Is(err, vllm.ErrNoBackend) {
				t.Error(err)
			}
			if got := b.e.Calls(); len(got) != 0 {
				t.Errorf("it was called: %q", got)
			}
		})
	}
}

// TestShiftedAnswers: an exception in rank 0 that somebody else caused shifts the answers of rank 1 for good.
func TestShiftedAnswers(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.take(1)
	b.e.Rank(0).Raise["drydock_status"] = "somebody else's exception"
	b.fails(b.version(2), refit.InstallRefused, "somebody else's exception")
	if err := b.failure(b.version(2), refit.InstallRefused, "restart the engine"); !errors.Is(err, vllm.ErrConfused) {
		t.Error(err)
	}
	b.serves("7.1")
}

// TestRestartedEngine: a new process is on its checkpoint again, knows no owner, and takes the version again.
func TestRestartedEngine(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.take(5)
	b.e.Kill()
	b.fails(b.version(6), refit.EngineUnreachable, "connection refused")
	b.e.Resize(2)
	b.e.Start()
	b.serves("default")
	b.take(5)
}

// TestKilledEngine: it dies in the middle of the apply; its next life is fresh.
func TestKilledEngine(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.take(1)
	b.e.At("POST /finish_weight_update", vllmtest.Fault{Before: b.e.Kill})
	if _, err := b.inst.Install(bounded(t), b.version(2)); refit.ClassOf(err) != refit.EngineUnknown {
		t.Errorf("class %s, want %s: %v", refit.ClassOf(err), refit.EngineUnknown, err)
	}
	b.e.Resize(2)
	b.e.Start()
	b.take(2)
}

func TestDrain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		drain   vllm.Drain
		aborted int
	}{{vllm.Wait, 0}, {vllm.Keep, 0}, {vllm.Abort, 3}} {
		b := newBench(t, 1, func(cfg *vllm.Config) { cfg.Drain = c.drain })
		b.e.Run(3)
		if report := b.take(1); report.Pause <= 0 {
			t.Errorf("%s: pause %v", c.drain, report.Pause)
		}
		if got := b.e.State().Aborted; got != c.aborted {
			t.Errorf("%s: %d requests were aborted, want %d", c.drain, got, c.aborted)
		}
	}
}

// TestPrepare looks at everything and changes nothing.
func TestPrepare(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.take(1)
	two := b.version(2)
	before := len(b.e.Calls())
	if err := b.inst.Prepare(bounded(t), two); err != nil {
		t.Fatal(err)
	}
	b.serves("7.1")
	if got := b.e.Calls()[before:]; slices.Contains(got, "pause") {
		t.Errorf("the engine was paused: %q", got)
	}
	in := b.version(3)
	b.e.At("POST /update_weights", vllmtest.Fault{Before: func() { os.Remove(in.Files[1]) }})
	if err := b.inst.Prepare(bounded(t), in); refit.ClassOf(err) != refit.InstallRefused {
		t.Errorf("class %s: %v", refit.ClassOf(err), err)
	}
	b.serves("7.1")
	b.take(2)
}

// TestTrace: the server and its workers hear of the refit's trace.
func TestTrace(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	if _, err := b.inst.Install(trace.ContextWithSpanContext(bounded(t), sc), b.version(1)); err != nil {
		t.Fatal(err)
	}
	want := "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
	for _, path := range []string{"/finish_weight_update", "/pause", "/resume"} {
		if got := b.e.Traceparent(path); got != want {
			t.Errorf("%s came with traceparent %q, want %q", path, got, want)
		}
	}
}

// TestCapture: the engine is asked until its capture is ready.
func TestCapture(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.e.Captures = []map[string]any{{"capture": "running"}, {"capture": "ready", "file": "/c/x.json.gz"}}
	if path, err := b.inst.Capture(bounded(t)); err != nil || path != "/c/x.json.gz" {
		t.Errorf("got %q, %v", path, err)
	}
	b.e.Captures = []map[string]any{{"capture": "failed", "error": "no such class"}}
	if _, err := b.inst.Capture(bounded(t)); err == nil || !strings.Contains(err.Error(), "no such class") {
		t.Errorf("got %v", err)
	}
	b.e.Captures = nil
	if _, err := b.inst.Capture(bounded(t)); !errors.Is(err, vllm.ErrConfused) {
		t.Errorf("got %v", err)
	}
	b.e.Captures = []map[string]any{{"capture": "running"}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.inst.Capture(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []vllm.Config{
		{}, {URL: "127.0.0.1:8000"}, {URL: "http://h", Drain: "never"}, {URL: "http://h", CallTimeout: -1}, {URL: "http://%"},
	} {
		if _, err := vllm.New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
