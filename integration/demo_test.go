package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drydock-rl/drydock/internal/natsd"
	"github.com/drydock-rl/drydock/internal/proof"
	"github.com/drydock-rl/drydock/pkg/messages/natstest"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// demo is a demo under way, with folders of its own for temporary files and arenas.
type demo struct {
	*process
	tmp, arenas string
}

func startDemo(t *testing.T, args ...string) *demo {
	t.Helper()
	d := &demo{tmp: t.TempDir(), arenas: arenaFolder(t)}
	all := []string{"demo", "--checkpoint", built.checkpoint, "--trainers", "2", "--versions", "2", "--arena-dir", d.arenas}
	d.process = startWith(t, "demo", []string{"TMPDIR=" + d.tmp}, "refitctl", append(all, args...)...)
	return d
}

// leftNothing checks that neither a process nor a file of the demo is left.
func (d *demo) leftNothing() {
	d.t.Helper()
	for _, dir := range []string{d.tmp, d.arenas} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 0 {
			d.t.Errorf("left in %s: %v, %v", dir, entries, err)
		}
	}
	if left := d.children(); len(left) > 0 {
		d.t.Errorf("still running: %v", left)
	}
}

// children are the command lines of all processes that the demo started and that still run, found by the environment that
// it gave them.
func (d *demo) children() (lines []string) {
	d.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(b), "TMPDIR="+d.tmp) || f == fmt.Sprintf("/proc/%d/environ", d.cmd.Process.Pid) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
	}
	return lines
}

// says waits for words in one line of the progress, wherever it goes.
func (d *demo) says(words ...string) {
	d.t.Helper()
	eventually(d.t, "the demo says "+strings.Join(words, " … "), func() (bool, string) {
		for line := range strings.Lines(d.wrote() + "\n" + strings.Join(d.said(), "\n")) {
			if containsAll(line, words) {
				return true, ""
			}
		}
		return false, d.lastSaid()
	})
}

// TestDemoJSON reads the demo's results as a program would.
func TestDemoJSON(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "--json")
	if code := d.ended(); code != 0 {
		t.Fatalf("exit code %d: %s", code, d.lastSaid())
	}
	var got struct {
		Model, Checkpoint, Capture, Layout string
		Seed                               uint64
		Trainers, TP                       int
		Arenas                             []string
		Versions                           []struct {
			Version   uint64
			Receivers []tracing.Record
			Proofs    []proof.Report
		}
	}
	if err := json.Unmarshal([]byte(d.wrote()), &got); err != nil {
		t.Fatalf("%v in:\n%s", err, d.wrote())
	}
	if got.Model == "" || got.Checkpoint != built.checkpoint || got.Trainers != 2 || got.TP != 2 || got.Layout != "fsdp" || len(got.Arenas) != 2 || len(got.Versions) != 2 {
		t.Errorf("the results are not complete: %+v", got)
	}
	least := 1.0 // share of a cycle's time that no stage explains, in the cycle that was disturbed least by other processes
	for i, v := range got.Versions {
		if v.Version != uint64(i+1) || len(v.Receivers) != 2 || len(v.Proofs) != 2 {
			t.Fatalf("version %d is not complete: %+v", i+1, v)
		}
		for rank := range v.Receivers {
			if v.Receivers[rank].Drydock.Outcome != tracing.OutcomeApplied || v.Proofs[rank].Nbytes == 0 {
				t.Errorf("version %d of receiver %d: outcome %s, %d bytes proven", v.Version, rank, v.Receivers[rank].Drydock.Outcome, v.Proofs[rank].Nbytes)
			}
			least = min(least, float64(v.Receivers[rank].UnattributedMs/v.Receivers[rank].E2EMs))
		}
	}
	if least >= 0.05 {
		t.Errorf("%.1f %% of each cycle are in no stage, expected less than a twentieth in one of them", 100*least)
	}
	d.leftNothing()
}

// TestDemoOnGivenServer checks that nothing of the demo stays on somebody else's server.
func TestDemoOnGivenServer(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natsd.Options{})
	d := startDemo(t, "--nats", server.URL(), "--transport", "tcp", "--receivers", "1")
	if code := d.ended(); code != 0 {
		t.Fatalf("exit code %d: %s", code, d.lastSaid())
	}
	for _, words := range []string{"version 2", "wire_transfer", "refit version", "every byte was proven"} {
		if !strings.Contains(d.wrote(), words) {
			t.Errorf("the report has no %q:\n%s", words, d.wrote())
		}
	}
	js, err := jetstream.New(natstest.Connect(t, server))
	if err != nil {
		t.Fatal(err)
	}
	for name := range js.StreamNames(natstest.Context(t, patience)).Name() {
		t.Errorf("left on the server: stream %s", name)
	}
	d.leftNothing()
}

// TestDemoKeeps looks around in a demo that was kept, and ends it.
func TestDemoKeeps(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "--keep", "--receivers", "1")
	d.says("left running", "Ctrl-C")
	if n := len(d.children()); n != 3 {
		t.Errorf("%d processes are running, expected two publishers and a receiver: %v", n, d.children())
	}
	d.signal(syscall.SIGINT)
	if code := d.ended(); code != 0 {
		t.Errorf("exit code %d: %s", code, d.lastSaid())
	}
	if left := d.children(); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
	if found, err := filepath.Glob(d.arenas + "/*/receiver-0/current/rank-0.safetensors"); err != nil || len(found) != 1 {
		t.Errorf("the arena was not kept: %v, %v", found, err)
	}
}

// TestDemoInterrupted ends a demo in the middle of its versions.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			d := startDemo(t, "--versions", "100000")
			d.says("version 1", "applied by receiver")
			d.signal(s)
			if code := d.ended(); code != 0 {
				t.Errorf("exit code %d: %s", code, d.lastSaid())
			}
			d.leftNothing()
		})
	}
}

// TestDemoFails has the demo run programs that don't do what they should. It must say so, and clean up all the same.
func TestDemoFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, publisher, receiver string
		code                      int
		says                      []string
	}{
		{"wrong bytes", `exec "$real/publisher" "$@" --seed 2`, `exec "$real/receiver" "$@"`, 5, []string{"prove version 1 of receiver-", "element", "expected bytes"}},
		{"receiver dies", `exec "$real/publisher" "$@"`, `echo out of luck >&2; exit 7`, 1, []string{"receiver-", "exit status 7", "out of luck"}},
		{"publisher dies", `echo out of steam >&2; exit 7`, `exec "$real/receiver" "$@"`, 1, []string{"publisher-", "exit status 7", "out of steam"}},
		{"no programs", "", "", 4, []string{"make build", "--bin-dir"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bin := t.TempDir()
			for name, body := range map[string]string{"publisher": c.publisher, "receiver": c.receiver} {
				if body == "" {
					continue
				}
				script := "#!/bin/sh\nreal=" + built.bin + "\n" + body + "\n"
				if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			d := startDemo(t, "--bin-dir", bin)
			code, said := d.ended(), errorLines(d.said())
			if code != c.code || len(said) != 1 || !containsAll(strings.Join(said, "\n"), c.says) {
				t.Errorf("exit code %d, expected %d; expected one line with %q; it said:\n%s", code, c.code, c.says, strings.Join(d.said(), "\n"))
			}
			d.leftNothing()
		})
	}
}
