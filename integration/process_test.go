package integration

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drydock-rl/drydock/pkg/tracing"
)

// patience bounds every wait of these tests. It is long because machines that run tests are busy; nothing waits it out
// unless it fails.
const patience = 60 * time.Second

// process is one program under test.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and its output is read

	mu     sync.Mutex
	stdout []string
	stderr []string
}

// start runs a program. It ends with the test at the latest, and what it said is shown if the test fails.
func start(t *testing.T, name, program string, args ...string) *process {
	t.Helper()
	return startWith(t, name, []string{tracing.EnvStdout + "=1", "OTEL_SDK_DISABLED=true"}, program, args...)
}

// startWith is start with settings of the environment.
func startWith(t *testing.T, name string, environ []string, program string, args ...string) *process {
	t.Helper()
	if !filepath.IsAbs(program) {
		program = filepath.Join(built.bin, program)
	}
	p := &process{t: t, name: name, cmd: exec.Command(program, args...), done: make(chan struct{})}
	// The race detector would have each program sleep for a second when it ends.
	p.cmd.Env = append(append(p.cmd.Environ(), "GORACE=atexit_sleep_ms=0"), environ...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	living.add(p)
	go p.watch(stdout, stderr)
	t.Cleanup(p.finish)
	return p
}

func (p *process) watch(stdout, stderr io.Reader) {
	var wg sync.WaitGroup
	wg.Go(func() { p.collect(stdout, &p.stdout) })
	wg.Go(func() { p.collect(stderr, &p.stderr) })
	wg.Wait()
	_ = p.cmd.Wait() // the state tells
	living.remove(p)
	close(p.done)
}

func (p *process) collect(r io.Reader, to *[]string) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		*to = append(*to, lines.Text())
		p.mu.Unlock()
	}
}

// finish ends what still runs, and shows what it said when the test failed.
func (p *process) finish() {
	p.signal(syscall.SIGCONT)
	p.kill()
	if p.t.Failed() {
		p.t.Logf("%s said:\n%s", p.name, strings.Join(p.said(), "\n"))
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, errFinished) {
		p.t.Errorf("send %v to %s: %v", s, p.name, err)
	}
}

// kill ends the process without asking it, and waits until it is gone.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.ended()
}

// stop asks the process to leave, and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.ended()
}

// ended waits for the end of the process and returns its exit code, -1 after a signal.
func (p *process) ended() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Errorf("%s has not ended within %v", p.name, patience)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return p.cmd.ProcessState.ExitCode()
}

// freeze stops the process where it is, until thaw. It returns when the kernel says that it is stopped.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(p.t, p.name+" is stopped", func() (bool, string) {
		state := p.kernelState()
		return state == "T", "state " + state
	})
}

func (p *process) thaw() { p.signal(syscall.SIGCONT) }

// said is what the process wrote to standard error so far, by lines.
func (p *process) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.stderr...)
}

// lastSaid is the last line of it.
func (p *process) lastSaid() string {
	lines := p.said()
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// awaitSaid waits for a line on standard error that has all of the words.
func (p *process) awaitSaid(words ...string) {
	p.t.Helper()
	eventually(p.t, p.name+" says "+strings.Join(words, " … "), func() (bool, string) {
		for _, line := range p.said() {
			if containsAll(line, words) {
				return true, ""
			}
		}
		return false, "last it said: " + p.lastSaid()
	})
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// wrote is what the process wrote to standard output so far.
func (p *process) wrote() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.stdout, "\n")
}

// records are the refit records that the process has printed.
func (p *process) records() []tracing.Record {
	p.mu.Lock()
	lines := append([]string(nil), p.stdout...)
	p.mu.Unlock()
	var all []tracing.Record
	for _, line := range lines {
		if r, err := tracing.ParseLine(line); err == nil {
			all = append(all, r)
		}
	}
	return all
}

// record waits for the record of a cycle of a version that ended with an outcome.
func (p *process) record(version uint64, outcome tracing.Outcome) (found tracing.Record) {
	p.t.Helper()
	eventually(p.t, p.name+" records that version ended: "+string(outcome), func() (bool, string) {
		for _, r := range p.records() {
			if r.Version == version && r.Drydock.Outcome == outcome {
				found = r
				return true, ""
			}
		}
		return false, "last it said: " + p.lastSaid()
	})
	return found
}

// eventually asks again and again until a condition holds, and fails the test after patience, with what was seen last.
func eventually(t *testing.T, what string, holds func() (bool, string)) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := holds()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: not within %v; %s", what, patience, seen)
		}
	}
}
