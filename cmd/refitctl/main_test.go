package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// refitctl runs one command line.
func refitctl(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Run(natstest.Context(t, 30*time.Second), "refitctl", about, &config{}, args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// must runs a command line that has to succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := refitctl(t, args...)
	if code != cli.ExitOK {
		t.Fatalf("refitctl %s: exit code %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// refuse runs a command line that has to fail with a code and one line that says why.
func refuse(t *testing.T, want int, text string, args ...string) {
	t.Helper()
	code, _, errs := refitctl(t, args...)
	if code != want || !strings.Contains(errs, text) {
		t.Errorf("refitctl %s: exit code %d, %q; want %d, %q", strings.Join(args, " "), code, errs, want, text)
	}
	if lines := strings.Count(strings.TrimSpace(errs), "\n"); lines > 0 {
		t.Errorf("refitctl %s: %d more lines than one: %q", strings.Join(args, " "), lines, errs)
	}
}

// onServer gives the flags that reach a model on a server, which is empty as yet.
func onServer(t *testing.T, o natsd.Options) (*natsd.Server, func(command string, args ...string) []string) {
	t.Helper()
	s := natstest.Start(t, o)
	return s, func(command string, args ...string) []string {
		return append([]string{command, "--nats", s.URL(), "--model", "org/tiny", "--timeout", "5s"}, args...)
	}
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	k, err := kong.New(&config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range k.Model.Children {
		out := must(t, n.Name, "--help")
		if !strings.Contains(out, "Usage: refitctl "+n.Name) {
			t.Errorf("%s: help is %q", n.Name, out)
		}
		explained := n.Name == "demo" || n.Name == "bench" // their flags say it all
		if !explained && !strings.Contains(out, "Examples:\n\n    refitctl "+n.Name) {
			t.Errorf("%s: no example in its help:\n%s", n.Name, out)
		}
	}
}

func TestModelIsCreatedListedAndRemoved(t *testing.T) {
	t.Parallel()
	s, args := onServer(t, natsd.Options{})
	refuse(t, cli.ExitUnavailable, "refitctl init", args("versions")...)
	for range 2 {
		if out := must(t, args("init", "--memory")...); !strings.Contains(out, "stream REFIT_org-tiny, buckets refit_lease_org-tiny, refit_status_org-tiny") {
			t.Errorf("init says %q", out)
		}
	}
	refuse(t, cli.ExitUnavailable, "storage is Memory, want File", args("init")...)
	refuse(t, cli.ExitUnavailable, "max bytes is 268435456, want 1048576", args("init", "--memory", "--max-bytes", "1MiB")...)

	nc := natstest.Connect(t, s)
	c, err := messages.Open(natstest.Context(t, 10*time.Second), nc, messages.Config{Model: "org/tiny"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.PutStatus(natstest.Context(t, 10*time.Second), "receiver-0", messages.Status{Role: messages.RoleReceiver, Host: "h", Ranks: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"versions": "has no versions", "publishers": "no publisher", "receivers": "receiver-0",
	} {
		if out := must(t, args(command)...); !strings.Contains(out, want) {
			t.Errorf("%s says %q, want %q", command, out, want)
		}
		var v struct{ Model string }
		if err := json.Unmarshal([]byte(must(t, args(command, "--json")...)), &v); err != nil || v.Model != "org/tiny" {
			t.Errorf("%s --json: %+v, %v", command, v, err)
		}
	}

	refuse(t, cli.ExitUsage, "--yes", args("remove")...)
	for range 2 {
		must(t, args("remove", "--yes")...)
	}
	refuse(t, cli.ExitUnavailable, "no such stream", args("receivers")...)
}

func TestWithoutServer(t *testing.T) {
	t.Parallel()
	_, args := onServer(t, natsd.Options{NoJetStream: true})
	for _, command := range []string{"init", "versions", "receivers", "publishers"} {
		refuse(t, cli.ExitUnavailable, "JetStream", args(command)...)
		refuse(t, cli.ExitUnavailable, "is a NATS server", command, "--model", "m", "--nats", "nats://127.0.0.1:1", "--nats-wait", "1ms")
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"versions", "--nats", "nats://127.0.0.1:1"}, // no model
		{"versions", "--model", "m", "--timeout", "1ms"},
		{"init", "--model", "m", "--replicas", "2"},
		{"init", "--model", "m", "--max-bytes", "some"},
		{"init", "--model", "m", "--max-bytes", "1K"},
		{"health", "localhost"},
		{"checkpoint"},
		{"capture", "-o", "x"},
		{"nonsense"},
	} {
		refuse(t, cli.ExitUsage, "refitctl: ", args...)
	}
}

func TestCheckpointAndCapture(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	capture := filepath.Join(dir, "capture.json")
	for range 2 {
		must(t, "checkpoint", dir, "--tiny", "--tp", "2", "--capture", capture)
	}
	refuse(t, cli.ExitInput, "seed 1", "checkpoint", dir, "--tiny", "--seed", "2")
	if out := must(t, "capture", "--checkpoint", dir, "--tp", "4"); !strings.HasPrefix(out, `{`) {
		t.Errorf("capture writes %.60q", out)
	}
	must(t, "capture", "--checkpoint", dir, "-o", filepath.Join(dir, "c.json.gz"))
	refuse(t, cli.ExitInput, "nonexistent", "capture", "--checkpoint", "/nonexistent")
}

func TestWhyWatchAndRollback(t *testing.T) {
	t.Parallel()
	_, args := onServer(t, natsd.Options{})
	must(t, args("init", "--memory")...)
	refuse(t, cli.ExitFailure, "has no version", args("why")...)
	refuse(t, cli.ExitFailure, "no run", args("why", "3")...)
	if out := must(t, args("why", "1.3")...); !strings.Contains(out, "Nobody has published anything of version 1.3") {
		t.Errorf("why says %q", out)
	}
	refuse(t, cli.ExitUsage, "no version", args("why", "newest")...)
	refuse(t, cli.ExitUsage, "reason", args("rollback", "1.3")...)
	refuse(t, cli.ExitFailure, "refitctl versions", args("rollback", "1.3", "--reason", "x")...)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // stands for Ctrl-C
	defer cancel()
	var out, errs bytes.Buffer
	if code := cli.Run(ctx, "refitctl", about, &config{}, args("watch"), &out, &errs); code != cli.ExitOK {
		t.Errorf("watch ends with %d: %s", code, errs.String())
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	capture, svg := filepath.Join(t.TempDir(), "c.json"), filepath.Join(t.TempDir(), "e.svg")
	must(t, "checkpoint", dir, "--tiny", "--tp", "2", "--capture", capture)
	args := func(more ...string) []string {
		return append([]string{"plan", "--capture", capture, "--tp", "2", "--checkpoint", dir}, more...)
	}
	if out := must(t, args("--ranks", "0,1", "--json")...); !strings.Contains(out, `"amplification"`) {
		t.Errorf("plan writes %q", out)
	}
	if out := must(t, args("--param", "lm_head.weight", "--svg", svg)...); !strings.Contains(out, "destination rank 0") {
		t.Errorf("plan --param writes %q", out)
	}
	if b, err := os.ReadFile(svg); err != nil || !bytes.HasPrefix(b, []byte("<svg")) {
		t.Errorf("%.20q, %v", b, err)
	}
	if out := must(t, args("--param", "lm_head.weight", "--svg", "-")...); !strings.HasPrefix(out, "<svg") {
		t.Errorf("plan --svg - writes %.20q", out)
	}
	// A checkpoint that lacks what the capture names.
	other := filepath.Join(t.TempDir(), "other")
	must(t, "checkpoint", other, "--tiny")
	if err := os.Remove(filepath.Join(other, "model.safetensors.index.json")); err != nil {
		t.Fatal(err)
	}
	refuse(t, cli.ExitMismatch, "no plan can be made", "plan", "--capture", capture, "--tp", "2",
		"--checkpoint", filepath.Join(other, "model-00001-of-00002.safetensors"))
	refuse(t, cli.ExitUsage, "--checkpoint", "plan", "--capture", capture)
	refuse(t, cli.ExitUsage, "at least 1", "plan", "--capture", capture, "--checkpoint", dir, "--max-segments-per-copy", "0")
	refuse(t, cli.ExitUsage, "--param", args("--svg", "x")...)
	refuse(t, cli.ExitInput, "nonexistent", "plan", "--capture", "/nonexistent", "--checkpoint", dir)
	refuse(t, cli.ExitInput, "zebra", args("--param", "zebra")...)
	_, onModel := onServer(t, natsd.Options{})
	must(t, onModel("init", "--memory")...)
	refuse(t, cli.ExitFailure, "latest", onModel("plan", "--capture", capture)...)
}

func TestThisHost(t *testing.T) {
	t.Parallel()
	must(t, "version")
	must(t, "arenas", "--arena-dir", t.TempDir(), "--verify", "--remove-orphans")
	// What it finds is this host's business.
	if _, out, errs := refitctl(t, "doctor", "--listen", "127.0.0.1:0", "--json"); !strings.Contains(out, `"findings"`) {
		t.Errorf("doctor writes %q, %q", out, errs)
	}
	refuse(t, cli.ExitUnavailable, "failures", "doctor", "--listen", "256.0.0.1:1")
	broken := t.TempDir()
	slot := filepath.Join(broken, "receiver-0", "slot-1")
	if err := os.MkdirAll(slot, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(slot, "rank-0.safetensors"), filepath.Join(broken, "receiver-0", "lock")} {
		if err := os.WriteFile(path, []byte("not a header at all"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "arenas", "--arena-dir", broken)
	refuse(t, cli.ExitMismatch, "1 of 1", "arenas", "--arena-dir", broken, "--verify")
	if out := must(t, "arenas", "--arena-dir", broken, "--remove-orphans"); !strings.Contains(out, "removed "+slot) {
		t.Errorf("arenas says %q", out)
	}
}

func TestTraceAndUsers(t *testing.T) {
	t.Parallel()
	_, args := onServer(t, natsd.Options{})
	must(t, args("init", "--memory")...)
	refuse(t, cli.ExitFailure, "no run", args("trace", "3", "--collector", "http://127.0.0.1:1")...)
	refuse(t, cli.ExitUsage, "--collector", args("trace", "3")...)
	keys := filepath.Join(t.TempDir(), "keys")
	if out := must(t, "nats-config", "--model", "org/tiny", "--world", "2", "--receivers", "a,b", "--keys", keys); !strings.Contains(out, "receiver b") {
		t.Errorf("nats-config writes %q", out)
	}
	refuse(t, cli.ExitUsage, "--world", "nats-config", "--model", "m", "--keys", keys)
}
