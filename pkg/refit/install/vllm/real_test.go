package vllm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/install/vllm"
)

// The tests of this file run real vLLM servers, each for minutes: `make test-vllm`. What they need is made by
// scripts/test-vllm.sh, which names it in the environment:
//
//	DRYDOCK_VLLM_PYTHON   interpreter that has vllm and drydock
//	DRYDOCK_VLLM_WORK     folder with <kind>-<seed>, models, and <kind>.json.gz, their captures
const startTimeout = 15 * time.Minute // on a busy machine; alone it takes one

// prompts are longer than a block of the prefix cache, so that a stale one would show.
var prompts = []string{
	strings.Repeat("The ship is in the dock and its hull is new. ", 4),
	strings.Repeat("Weights flow from the ranks that hold them. ", 5),
	"A short one",
}

// server is a running vLLM.
type server struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	done chan struct{}
}

func startServer(t *testing.T, model string, tp int) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	log, err := os.Create(filepath.Join(os.Getenv("DRYDOCK_VLLM_WORK"), "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	cmd := exec.Command(os.Getenv("DRYDOCK_VLLM_PYTHON"), "-m", "vllm.entrypoints.openai.api_server", "--model", model,
		"--host", "127.0.0.1", "--port", port, "--served-model-name", "m", "--dtype", "bfloat16", "--max-model-len", "512",
		"--max-num-seqs", "8", "--enforce-eager", "-tp", fmt.Sprint(tp), "--weight-transfer-config", `{"backend":"drydock"}`,
		"--worker-extension-cls", "breaking.BreakingWorker") // which makes applies fail; Drydock's own needs no flag
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "VLLM_SERVER_DEV_MODE=1", "VLLM_NO_USAGE_STATS=1", "VLLM_CPU_KVCACHE_SPACE=1")
	if tp > 1 {
		cmd.Env = append(cmd.Env, "VLLM_CPU_OMP_THREADS_BIND=0|1")
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	before := shmFiles()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, url: "http://127.0.0.1:" + port, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // it is told to end, or the log says why it did
		close(s.done)
	}()
	t.Cleanup(func() {
		s.stop()
		for _, f := range shmFiles() { // which vLLM leaves behind
			if !slices.Contains(before, f) {
				os.Remove(f)
			}
		}
	})
	s.awaitReady()
	return s
}

// shmFiles are what vLLM's processes keep in shared memory: queues, and semaphores of Python's.
func shmFiles() []string {
	var all []string
	for _, pattern := range []string{"vllm_dist_*", "psm_*", "sem.mp-*"} {
		found, _ := filepath.Glob("/dev/shm/" + pattern) // the patterns are right
		all = append(all, found...)
	}
	return all
}

func (s *server) awaitReady() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if status, _ := s.ask(ctx, http.MethodGet, "/health", nil); status == http.StatusOK {
			return
		}
		select {
		case <-tick.C:
		case <-s.done:
			s.t.Fatal("the server ended while it started; see server.log")
		case <-ctx.Done():
			s.t.Fatalf("the server is not ready after %v", startTimeout)
		}
	}
}

// stop ends the server and its workers.
func (s *server) stop() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.done
}

func (s *server) ask(ctx context.Context, method, path string, body any) (int, []byte) {
	b, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(b))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	out, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, out
}

func (s *server) complete(ctx context.Context, prompt string, tokens int) (int, string) {
	status, body := s.ask(ctx, http.MethodPost, "/v1/completions", map[string]any{
		"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 5, "ignore_eos": true,
	})
	var answer struct {
		Choices []struct {
			Logprobs json.RawMessage `json:"logprobs"`
		} `json:"choices"`
	}
	if json.Unmarshal(body, &answer) != nil || len(answer.Choices) != 1 {
		return status, string(body)
	}
	return status, string(answer.Choices[0].Logprobs)
}

// logprobs are those of the prompts, twice each: computed, and with the prefix cache.
func (s *server) logprobs() string {
	s.t.Helper()
	var all []string
	for range 2 {
		for _, p := range prompts {
			status, lp := s.complete(s.t.Context(), p, 8)
			if status != http.StatusOK {
				s.t.Fatalf("completion: HTTP %d %s", status, lp)
			}
			all = append(all, lp)
		}
	}
	return strings.Join(all, "\n")
}

// rpc calls a method of the test's own worker extension.
func (s *server) rpc(method string, kwargs map[string]any) []map[string]any {
	s.t.Helper()
	_, body := s.ask(s.t.Context(), http.MethodPost, "/collective_rpc", map[string]any{"method": method, "kwargs": kwargs})
	var a struct {
		Results []map[string]any `json:"results"`
	}
	if err := json.Unmarshal(body, &a); err != nil || len(a.Results) == 0 {
		s.t.Fatalf("%s: %s", method, body)
	}
	return a.Results
}

// world is a kind of model with its arenas.
type world struct {
	t    *testing.T
	kind string
	tp   int
	root string
}

func newWorld(t *testing.T, kind string, tp int) *world {
	t.Helper()
	if os.Getenv("DRYDOCK_VLLM_PYTHON") == "" {
		t.Skip("needs vLLM: make test-vllm")
	}
	root, err := os.MkdirTemp("/dev/shm", "drydock-test-vllm-") //nolint:usetesting // shared memory, as arenas are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	return &world{t: t, kind: kind, tp: tp, root: root}
}

func (w *world) model(seed int) string {
	return filepath.Join(os.Getenv("DRYDOCK_VLLM_WORK"), fmt.Sprintf("%s-%d", w.kind, seed))
}

// version makes arenas of the weights of a seed by replaying the capture.
func (w *world) version(n uint64, seed int) refit.Installation {
	w.t.Helper()
	in := refit.Installation{Model: "org/tiny", Key: messages.Key{Run: 7, Version: n}, Dir: filepath.Join(w.root, fmt.Sprintf("slot-%d", n))}
	for r := range w.tp {
		in.Ranks = append(in.Ranks, r)
		in.Files = append(in.Files, filepath.Join(in.Dir, fmt.Sprintf("rank-%d.safetensors", r)))
	}
	if _, err := os.Stat(in.Dir); err == nil {
		return in
	}
	cmd := exec.Command(os.Getenv("DRYDOCK_VLLM_PYTHON"), "make_arenas.py", filepath.Join(os.Getenv("DRYDOCK_VLLM_WORK"), w.kind+".json.gz"),
		w.model(seed), in.Dir, fmt.Sprint(w.tp), fmt.Sprint(in.Key.Run), fmt.Sprint(n))
	cmd.Dir = filepath.Join("..", "..", "..", "..", "python", "tests", "engines")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("make arenas: %v\n%s", err, out)
	}
	return in
}

func realInstaller(t *testing.T, s *server, change ...func(*vllm.Config)) *vllm.Installer {
	t.Helper()
	cfg := vllm.Config{URL: s.url, Owner: "test", Drain: vllm.Keep, SettleTimeout: time.Minute}
	for _, f := range change {
		f(&cfg)
	}
	inst, err := vllm.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return inst
}

func TestRealDense(t *testing.T)    { refitted(t, newWorld(t, "dense", 1)) }
func TestRealExperts2(t *testing.T) { refitted(t, newWorld(t, "moe", 2)) }

// refitted refits a server through versions, good and bad, and compares it with fresh servers of the same weights.
func refitted(t *testing.T, w *world) {
	truth := map[int]string{} // seed: logprobs of a fresh server
	s := startServer(t, w.model(1), w.tp)
	truth[1] = s.logprobs()
	inst := realInstaller(t, s)
	equal := func(seed int, after string) {
		t.Helper()
		got := s.logprobs()
		if want, ok := truth[seed]; !ok {
			truth[seed] = got // compared with a fresh server below
		} else if got != want {
			t.Errorf("after %s: logprobs differ from those of seed %d", after, seed)
		}
	}
	two, three := w.version(2, 2), w.version(3, 3)

	t.Run("failed first apply goes back to the checkpoint", func(t *testing.T) {
		s.rpc("test_break", map[string]any{"rank": w.tp - 1, "applies": 1})
		_, err := inst.Install(t.Context(), two)
		if refit.ClassOf(err) != refit.InstallRefused {
			t.Fatalf("class %s: %v", refit.ClassOf(err), err)
		}
		equal(1, "a failed apply")
	})
	t.Run("versions", func(t *testing.T) {
		for _, c := range []struct {
			in   refit.Installation
			seed int
		}{{two, 2}, {three, 3}, {two, 2}, {two, 2}, {three, 3}} {
			report, err := inst.Install(t.Context(), c.in)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %s: pause %v", w.kind, c.in.Key, report.Pause.Round(100*time.Microsecond))
			equal(c.seed, c.in.Key.String())
			if _, info := s.ask(t.Context(), http.MethodGet, "/weight_info", nil); !strings.Contains(string(info), c.in.Key.String()) {
				t.Errorf("the server shows %s, want %s", info, c.in.Key)
			}
		}
		for k, r := range s.rpc("test_mapped", nil) {
			if m, _ := r["mapped"].([]any); len(m) != 0 {
				t.Errorf("rank %d still maps %v: a receiver could not write there again", k, m)
			}
		}
	})
	if truth[2] == truth[1] || truth[2] == truth[3] {
		t.Fatal("weights of different seeds answer alike: nothing is tested")
	}
	t.Run("bad files", func(t *testing.T) { w.badFiles(t, s, inst, func(after string) { equal(3, after) }) })
	t.Run("failed apply goes back to the version before", func(t *testing.T) {
		for rank := range w.tp {
			s.rpc("test_break", map[string]any{"rank": rank, "applies": 1})
			if _, err := inst.Install(t.Context(), two); refit.ClassOf(err) != refit.InstallRefused {
				t.Fatalf("class %s: %v", refit.ClassOf(err), err)
			}
			equal(3, fmt.Sprintf("a failed apply on rank %d", rank))
		}
	})
	t.Run("broken stays paused until a version mends it", func(t *testing.T) {
		s.rpc("test_break", map[string]any{"rank": w.tp - 1, "applies": 3})
		_, err := inst.Install(t.Context(), two)
		if refit.ClassOf(err) != refit.EngineUnknown {
			t.Fatalf("class %s: %v", refit.ClassOf(err), err)
		}
		if _, paused := s.ask(t.Context(), http.MethodGet, "/is_paused", nil); !strings.Contains(string(paused), "true") {
			t.Errorf("is_paused answers %s", paused)
		}
		if _, err := inst.Install(t.Context(), three); err != nil {
			t.Fatal(err)
		}
		equal(3, "the mending")
	})
	t.Run("killed receiver", func(t *testing.T) { w.killed(t, s, two, three, equal) })
	t.Run("second receiver, foreign pause", func(t *testing.T) {
		other := realInstaller(t, s, func(c *vllm.Config) { c.Owner = "other" })
		if _, err := other.Install(t.Context(), two); refit.ClassOf(err) != refit.InstallRefused || !strings.Contains(err.Error(), `"test"`) {
			t.Errorf("second receiver: %v", err)
		}
		s.ask(t.Context(), http.MethodPost, "/pause?mode=keep", nil)
		if _, err := inst.Install(t.Context(), two); refit.ClassOf(err) != refit.EngineUnreachable {
			t.Errorf("paused by another: %v", err)
		}
		s.ask(t.Context(), http.MethodPost, "/resume", nil)
		equal(3, "a foreign pause")
	})
	t.Run("requests during refits", func(t *testing.T) { w.underLoad(t, s, inst) })

	s.stop()
	for _, seed := range []int{2, 3} {
		fresh := startServer(t, w.model(seed), w.tp)
		if got := fresh.logprobs(); got != truth[seed] {
			t.Errorf("a fresh server of seed %d and the refit one answer differently", seed)
		}
		fresh.stop()
	}
}

// badFiles: each is refused, pauses nothing, and the weights before serve as they did.
func (w *world) badFiles(t *testing.T, s *server, inst *vllm.Installer, same func(after string)) {
	last := w.tp - 1
	for i, c := range []struct {
		name  string
		spoil func(in refit.Installation) error
	}{
		{"truncated", func(in refit.Installation) error { return os.Truncate(in.Files[last], 5000) }},
		{"no header", func(in refit.Installation) error { return os.WriteFile(in.Files[last], make([]byte, 8192), 0o600) }},
		{"missing tensor", func(in refit.Installation) error { return edit(in.Files[last], "drop") }},
		{"wrong shape", func(in refit.Installation) error { return edit(in.Files[last], "shape") }},
		{"wrong type", func(in refit.Installation) error { return edit(in.Files[last], "type") }},
		{"unknown tensor", func(in refit.Installation) error { return edit(in.Files[last], "more") }},
		{"wrong rank", func(in refit.Installation) error { return edit(in.Files[last], "rank") }},
		{"outside the root", func(in refit.Installation) error {
			outside := filepath.Join(t.TempDir(), "outside.safetensors")
			if err := copyFile(in.Files[last], outside); err != nil {
				return err
			}
			os.Remove(in.Files[last])
			return os.Symlink(outside, in.Files[last])
		}},
	} {
		in := w.version(uint64(100+i), 1)
		if err := c.spoil(in); err != nil {
			t.Fatal(err)
		}
		_, err := inst.Install(t.Context(), in)
		if refit.ClassOf(err) != refit.InstallRefused {
			t.Errorf("%s: class %s: %v", c.name, refit.ClassOf(err), err)
		}
		t.Logf("%s: %v", c.name, err)
		same(c.name)
	}
}

// killed: a receiver that dies after any of these calls leaves an engine that the next one settles.
func (w *world) killed(t *testing.T, s *server, two, three refit.Installation, equal func(int, string)) {
	for _, call := range []string{"/start_weight_update", "/update_weights", "/pause", "/finish_weight_update", "/update_weight_version"} {
		ctx, kill := context.WithCancel(t.Context())
		dying := realInstaller(t, s, func(c *vllm.Config) {
			c.SettleTimeout = time.Nanosecond
			c.Client = &http.Client{Transport: killer{call: call, kill: kill}}
		})
		if _, err := dying.Install(ctx, two); err == nil {
			t.Errorf("killed after %s, and installed", call)
		}
		kill()
		if _, err := realInstaller(t, s).Install(t.Context(), three); err != nil {
			t.Errorf("after a death at %s: %v", call, err)
		}
		equal(3, "a death at "+call)
	}
}

// killer ends a context once a call has been answered.
type killer struct {
	call string
	kill func()
}

func (k killer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if r.URL.Path == k.call {
		k.kill()
	}
	return resp, err
}

// underLoad: requests without pause during 20 refits. None fails, and each answer is that of one version.
func (w *world) underLoad(t *testing.T, s *server, _ *vllm.Installer) {
	wait := realInstaller(t, s, func(c *vllm.Config) { c.Drain = vllm.Wait })
	a, b := w.version(200, 2), w.version(201, 3)
	truth := map[string]bool{}
	for _, in := range []refit.Installation{a, b} {
		if _, err := wait.Install(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		for range 4 { // with the cache and without; alone in its batch, as below
			_, lp := s.complete(t.Context(), prompts[2], 16)
			truth[lp] = true
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var asked, strange atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			status, lp := s.complete(t.Context(), prompts[2], 16)
			asked.Add(1)
			if status != http.StatusOK || !truth[lp] {
				strange.Add(1)
				t.Logf("HTTP %d: %.300s", status, lp)
			}
		}
	})
	var pauses []time.Duration
	// At least 20 refits, and at least as many requests: on a busy machine several refits may pass between two of them.
	for k := 0; k < 20 || k < 100 && asked.Load() < 20; k++ {
		in := []refit.Installation{a, b}[k%2]
		report, err := wait.Install(t.Context(), in)
		if err != nil {
			t.Errorf("refit %d: %v", k, err)
		}
		pauses = append(pauses, report.Pause)
	}
	stop()
	wg.Wait()
	slices.Sort(pauses)
	t.Logf("%s: %d refits, %d requests, %d strange; pause %v median, %v longest", w.kind, len(pauses), asked.Load(), strange.Load(),
		pauses[len(pauses)/2].Round(100*time.Microsecond), pauses[len(pauses)-1].Round(100*time.Microsecond))
	if strange.Load() != 0 || asked.Load() < 20 {
		t.Errorf("%d of %d requests failed or were answered by no version alone", strange.Load(), asked.Load())
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// edit rewrites an arena with one thing wrong, by the safetensors package.
func edit(path, how string) error {
	const script = `
import sys, torch
from safetensors import safe_open
from safetensors.torch import save_file
path, how = sys.argv[1:]
with safe_open(path, "pt") as f:
    meta, t = f.metadata(), {n: f.get_tensor(n).clone() for n in f.keys()}
name = "model.layers.1.self_attn.o_proj.weight"
if how == "drop": del t[name]
if how == "shape": t[name] = t[name].flatten().clone()
if how == "type": t[name] = t[name].float()
if how == "more": t["more"] = torch.zeros(3)
if how == "rank": meta["drydock.rank"] = "5"
save_file(t, path, meta)
`
	out, err := exec.Command(os.Getenv("DRYDOCK_VLLM_PYTHON"), "-c", script, path, how).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
