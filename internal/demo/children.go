package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/drydock-rl/drydock/internal/cli"
)

func publisherName(rank int) string { return fmt.Sprintf("publisher-%d", rank) }
func receiverName(rank int) string  { return fmt.Sprintf("receiver-%d", rank) }

// stopGrace is how long a child may take to leave when told to, before it is killed.
const stopGrace = 20 * time.Second

// child is one of the demo's processes.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string // file of its standard error
	done chan struct{}
	err  error // valid when done is closed
	told bool  // its end has been reported; valid when done is closed
}

// children starts processes and stops all of them.
type children struct {
	bin    string
	env    []string
	failed chan error // the first child that ended by itself

	mu       sync.Mutex
	all      []*child
	stopping bool
}

// newChildren finds the programs.
func newChildren(binDir string, env []string) (*children, error) {
	if binDir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program's folder: %w", err)
		}
		binDir = filepath.Dir(self)
	}
	for _, name := range []string{"publisher", "receiver"} {
		if _, err := os.Stat(filepath.Join(binDir, name)); err != nil {
			return nil, cli.WithCode(cli.ExitInput, fmt.Errorf("find the programs: %w (build them with make build, or name their folder with --bin-dir)", err))
		}
	}
	return &children{bin: binDir, env: env, failed: make(chan error, 1)}, nil
}

// start runs a program; each line of its standard output goes to line, its standard error to a log file.
func (cs *children) start(program, name, log string, args []string, line func(string)) error {
	f, err := os.Create(log)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	cmd := exec.Command(filepath.Join(cs.bin, program), args...)
	cmd.Env, cmd.Stderr = append(cmd.Environ(), cs.env...), f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", name, err), f.Close())
	}
	c := &child{name: name, cmd: cmd, log: log, done: make(chan struct{})}
	cs.mu.Lock()
	cs.all = append(cs.all, c)
	cs.mu.Unlock()
	go cs.watch(c, out, f, line)
	return nil
}

// watch reads a child's output to the end, and reports a child that ended without being told to.
func (cs *children) watch(c *child, out io.Reader, log *os.File, line func(string)) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line(lines.Text())
	}
	c.err = errors.Join(c.cmd.Wait(), log.Close())
	cs.mu.Lock()
	expected := cs.stopping
	cs.mu.Unlock()
	if !expected {
		c.told = true
		select {
		case cs.failed <- fmt.Errorf("%s ended by itself: %w; it said: %s", c.name, orEnded(c.err), lastLine(c.log)):
		default:
		}
	}
	close(c.done)
}

var errEnded = errors.New("exit status 0")

func orEnded(err error) error {
	if err == nil {
		return errEnded
	}
	return err
}

// lastLine is what a process said last.
func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// stop tells all children to leave, waits for them, and kills those that don't. Publishers come first, since they
// withdraw what they serve.
func (cs *children) stop() error {
	cs.mu.Lock()
	cs.stopping = true
	all := cs.all
	cs.all = nil
	cs.mu.Unlock()
	var errs []error
	for _, prefix := range []string{"publisher", "receiver"} {
		var some []*child
		for _, c := range all {
			if strings.HasPrefix(c.name, prefix) {
				some = append(some, c)
				_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already: wait says so
			}
		}
		errs = append(errs, reap(some))
	}
	return errors.Join(errs...)
}

// early says that a child ended by the signal to leave itself: it came before the program was ready to take it.
func early(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

func reap(some []*child) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	var errs []error
	for _, c := range some {
		select {
		case <-c.done:
		case <-ctx.Done():
			_ = c.cmd.Process.Kill()
			<-c.done
			errs = append(errs, fmt.Errorf("%s did not leave within %v and was killed", c.name, stopGrace))
			continue
		}
		if c.err != nil && !c.told && !early(c.err) {
			errs = append(errs, fmt.Errorf("%s left with an error: %w; it said: %s", c.name, c.err, lastLine(c.log)))
		}
	}
	return errors.Join(errs...)
}
