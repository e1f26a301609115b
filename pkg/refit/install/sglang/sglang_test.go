package sglang_test

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

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/safetensors"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/arena"
	"github.com/drydock-rl/drydock/pkg/refit/install/installtest"
	"github.com/drydock-rl/drydock/pkg/refit/install/sglang"
	"github.com/drydock-rl/drydock/pkg/refit/install/sglang/sglangtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	t    *testing.T
	s    *sglangtest.Server
	inst *sglang.Installer
	root string
}

func newBench(t *testing.T, change ...func(*sglang.Config)) *bench {
	t.Helper()
	b := &bench{t: t, s: sglangtest.New(t), root: t.TempDir()}
	b.inst = b.installer(change...)
	return b
}

func (b *bench) installer(change ...func(*sglang.Config)) *sglang.Installer {
	b.t.Helper()
	cfg := sglang.Config{URL: b.s.URL(), CallTimeout: 5 * time.Second, SettleTimeout: 5 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	inst, err := sglang.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return inst
}

func (b *bench) version(n uint64) refit.Installation {
	b.t.Helper()
	dir := filepath.Join(b.root, fmt.Sprintf("slot-%d", n))
	in := refit.Installation{
		Model: "org/model", Key: messages.Key{Run: 7, Version: n}, Dir: dir, Ranks: []int{0},
		Files: []string{filepath.Join(dir, "rank-0.safetensors")},
	}
	write(b.t, in, []int64{4})
	return in
}

func write(t *testing.T, in refit.Installation, shape []int64) {
	t.Helper()
	l, err := safetensors.NewLayout([]safetensors.Spec{{Name: "w", DType: "U8", Shape: shape}}, map[string]string{
		arena.MetaModel: in.Model, arena.MetaRun: strconv.FormatUint(in.Key.Run, 10),
		arena.MetaVersion: strconv.FormatUint(in.Key.Version, 10), arena.MetaRank: "0",
	}, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(in.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in.Files[0], append(l.Header, make([]byte, l.Nbytes-int64(len(l.Header)))...), 0o600); err != nil {
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

func (b *bench) serves(label string) {
	b.t.Helper()
	if s := b.s.State(); s.Label != label || s.Weights != label || s.Paused || s.Stale || s.Dead {
		b.t.Errorf("the server is %+v, want it to serve %s", s, label)
	}
}

func (b *bench) fails(in refit.Installation, class refit.Class, says string) {
	b.t.Helper()
	_, err := b.inst.Install(bounded(b.t), in)
	if err == nil || refit.ClassOf(err) != class || !strings.Contains(err.Error(), says) {
		b.t.Fatalf("install %s: class %s, error %v; want %s with %q", in.Key, refit.ClassOf(err), err, class, says)
	}
}

func TestConformance(t *testing.T) {
	installtest.Conformance(t, func(t *testing.T) installtest.Bench {
		b := newBench(t, func(c *sglang.Config) { c.SettleTimeout = 300 * time.Millisecond })
		return installtest.Bench{
			Installer: refit.InstallerFunc(func(ctx context.Context, in refit.Installation) (refit.Report, error) {
				if len(in.Files) > 1 { // one file whatever the size of the server: the suite's other ranks have none
					t.Skip("SGLang takes one file")
				}
				write(t, in, []int64{4}) // the suite's files are text
				return b.inst.Install(ctx, in)
			}),
			Served: func() installtest.Served {
				s := b.s.State()
				return installtest.Served{Key: s.Label, Files: s.Files}
			},
			Refuse: func() { b.s.At("/update_weights_from_disk", sglangtest.Fault{Status: 400}) },
			Vanish: func() func() { b.s.Kill(); return b.s.Start },
			Stall: func() func() {
				stalled := make(chan struct{})
				b.s.At("/update_weights_from_disk", sglangtest.Fault{Before: func() { <-stalled }})
				return func() { close(stalled) }
			},
			Pauses: true,
		}
	})
}

func TestOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.take(1)
	want := []string{"/pause_generation", "/update_weights_from_disk", "/continue_generation"}
	if got := b.s.Calls(); !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
	b.take(1)
	if got := b.s.Calls()[3:]; !slices.Equal(got, want[2:]) {
		t.Errorf("the same version again: calls %q, want %q", got, want[2:])
	}
}

// TestEveryCallFails: the server goes on afterwards, with a version that its label names, and takes the next.
func TestEveryCallFails(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/get_model_info", "/pause_generation", "/update_weights_from_disk", "/continue_generation"} {
		for name, f := range map[string]sglangtest.Fault{"error": {Status: 500}, "gone": {Status: 503}, "answer lost": {Drop: true}} {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.take(1)
				b.s.At(path, f)
				_, err := b.inst.Install(bounded(t), b.version(2))
				s := b.s.State()
				b.serves(s.Label)
				if err == nil { // net/http asks again where an idempotent call lost its answer
					if s.Label != "7.2" {
						t.Errorf("no error, and it serves %s", s.Label)
					}
				} else if s.Label != "7.1" && refit.ClassOf(err) != refit.EngineUnknown {
					t.Errorf("it serves %s, and the error is %s: %v", s.Label, refit.ClassOf(err), err)
				}
				b.take(1)
				b.take(2)
			})
		}
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	for mode, aborted := range map[sglang.Mode]int{sglang.Retract: 0, sglang.Abort: 3} {
		b := newBench(t, func(c *sglang.Config) { c.Mode = mode })
		b.s.Run(3)
		b.take(1)
		if got := b.s.State().Aborted; got != aborted {
			t.Errorf("%s: %d requests were aborted, want %d", mode, got, aborted)
		}
	}
}

// TestUnflushed: the weights are new, so it is no failure; the flush is tried until it is known to have succeeded.
func TestUnflushed(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *sglang.Config) { c.Mode = sglang.InPlace })
	b.s.Run(2)
	b.s.At("/flush_cache", sglangtest.Fault{Before: func() { b.s.Run(0) }}) // they end meanwhile
	b.take(1)
	if n := count(b.s.Calls(), "/update_weights_from_disk"); n != 2 {
		t.Errorf("updated %d times, want 2", n)
	}
}

// TestStaysUnflushed: requests that don't end keep their caches. The version is in, the server goes on, and the next
// installation, the same version too, tries again.
func TestStaysUnflushed(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *sglang.Config) { c.Mode, c.FlushTimeout = sglang.InPlace, 50*time.Millisecond })
	b.s.Run(2)
	one := b.version(1)
	if _, err := b.inst.Install(bounded(t), one); err != nil {
		t.Fatal(err)
	}
	if s := b.s.State(); s.Weights != "7.1" || s.Label != "7.1" || s.Paused || !s.Stale {
		t.Errorf("the server is %+v", s)
	}
	b.s.Run(0)
	b.take(1)
}

func count(list []string, what string) (n int) {
	for _, x := range list {
		if x == what {
			n++
		}
	}
	return n
}

// TestBadFolders: what would kill the server, or make it serve garbage, never reaches it.
func TestBadFolders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, in *refit.Installation)
		says  string
	}{
		{"missing", func(_ *testing.T, in *refit.Installation) { os.Remove(in.Files[0]) }, "expected only"},
		{"truncated", func(t *testing.T, in *refit.Installation) {
			if err := os.Truncate(in.Files[0], 20); err != nil {
				t.Fatal(err)
			}
		}, "rank-0"},
		{"another file beside", func(t *testing.T, in *refit.Installation) {
			if err := os.WriteFile(filepath.Join(in.Dir, "more.safetensors"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "more.safetensors"},
		{"other tensors", func(t *testing.T, in *refit.Installation) { write(t, *in, []int64{2, 2}) }, "other tensors"},
		{"another version", func(t *testing.T, in *refit.Installation) {
			other := *in
			other.Key.Version++
			write(t, other, []int64{4})
		}, `drydock.version "3"`},
		{"two ranks", func(_ *testing.T, in *refit.Installation) { in.Files = append(in.Files, in.Files[0]) }, "one file of one rank"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.take(1)
			before := len(b.s.Calls())
			in := b.version(2)
			c.spoil(t, &in)
			if err := b.inst.Prepare(bounded(t), in); refit.ClassOf(err) != refit.InstallRefused {
				t.Errorf("prepare: class %s: %v", refit.ClassOf(err), err)
			}
			b.fails(in, refit.InstallRefused, c.says)
			if got := b.s.Calls()[before:]; len(got) != 0 {
				t.Errorf("the server was called: %q", got)
			}
			b.serves("7.1")
		})
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.inst.Prepare(bounded(t), b.version(1)); err != nil || len(b.s.Calls()) != 0 {
		t.Errorf("%v, calls %q", err, b.s.Calls())
	}
	b.s.Kill()
	if err := b.inst.Prepare(bounded(t), b.version(1)); refit.ClassOf(err) != refit.EngineUnreachable {
		t.Errorf("class %s: %v", refit.ClassOf(err), err)
	}
}

// TestLyingLabel: 200, and another version shown.
func TestLyingLabel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.s.At("/update_weights_from_disk", sglangtest.Fault{Status: 200})
	b.fails(b.version(1), refit.InstallRefused, "did not update")
	b.take(1)
}

// TestCancelled: a caller that gives up leaves a server that goes on.
func TestCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.take(1)
	ctx, cancel := context.WithCancel(bounded(t))
	b.s.At("/update_weights_from_disk", sglangtest.Fault{Before: cancel})
	if _, err := b.inst.Install(ctx, b.version(2)); refit.ClassOf(err) != refit.EngineUnknown || !errors.Is(err, context.Canceled) {
		t.Errorf("class %s: %v", refit.ClassOf(err), err)
	}
	if s := b.s.State(); s.Paused {
		t.Errorf("the server is %+v", s)
	}
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []sglang.Config{{}, {URL: "h:1"}, {URL: "http://h", Mode: "x"}, {URL: "http://h", FlushTimeout: -1}} {
		if _, err := sglang.New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
