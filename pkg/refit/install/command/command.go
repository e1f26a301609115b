// Package command is the installer that runs a program for each version. The program is told the version's files by
// its arguments and its environment, and answers by its exit code:
//
//	0           the engine serves the version
//	69          the engine can't be reached; nothing of it has changed (EX_UNAVAILABLE of sysexits.h)
//	70          the engine may hold either version (EX_SOFTWARE)
//	other       the engine refused, and serves what it served before
//	a signal,   as 70: the program was cut off in the middle, by a time-out or by somebody else
//	no answer
//
// The program must be idempotent: it is run again for a version that it has installed already, and for an older one when
// another rank of the engine failed. It may report what it measured, in milliseconds, in lines of its output:
//
//	DRYDOCK_PAUSE_MS=12.5
//	DRYDOCK_READY_MS=3
//
// It runs in a process group of its own. When time is up the whole group gets SIGTERM, and SIGKILL after a grace
// period, so that what it has started does not go on writing to an engine that was given up. No shell is involved.
package command

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/install"
)

// Exit codes with a meaning of their own.
const (
	ExitUnreachable = 69
	ExitUnknown     = 70
)

// Config says what is run. Args is needed.
type Config struct {
	Args    []string      // program and arguments, each a template of install.Vars
	Env     []string      // environment, beside what install.Vars.Environ says; nil: only that
	Dir     string        // working folder; "": this process's
	Timeout time.Duration // of one run; 0: until the caller's context ends
	Grace   time.Duration // between SIGTERM and SIGKILL; default 2 s
}

// tailBytes is how much of the end of a program's output an error carries.
const tailBytes = 2 << 10

func (c *Config) validate() error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return errors.New("no program is named")
	}
	if c.Timeout < 0 || c.Grace < 0 {
		return fmt.Errorf("timeout %v, grace %v: neither may be negative", c.Timeout, c.Grace)
	}
	if c.Grace == 0 {
		c.Grace = 2 * time.Second
	}
	return nil
}

// Installer runs a program. It is safe for concurrent use.
type Installer struct {
	cfg  Config
	args []*install.Text
}

// New reads the templates. Nothing is run yet.
func New(cfg Config) (*Installer, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make the command installer: %w", err)
	}
	c := &Installer{cfg: cfg}
	for i, arg := range cfg.Args {
		t, err := install.Parse(fmt.Sprintf("argument %d", i), arg)
		if err != nil {
			return nil, fmt.Errorf("make the command installer: %w", err)
		}
		c.args = append(c.args, t)
	}
	return c, nil
}

// Install runs the program once and waits for its exit.
func (c *Installer) Install(ctx context.Context, in refit.Installation) (refit.Report, error) {
	vars := install.VarsOf(in)
	args := make([]string, len(c.args))
	for i, t := range c.args {
		var err error
		if args[i], err = t.Render(vars); err != nil {
			return refit.Report{}, err // nothing was run
		}
	}
	if c.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.cfg.Timeout, fmt.Errorf("not done within %v: %w", c.cfg.Timeout, context.DeadlineExceeded))
		defer cancel()
	}
	out := &output{}
	if err := c.run(ctx, args, vars.Environ(), out); err != nil {
		return refit.Report{}, err
	}
	return out.report(), nil
}

// run starts the program and says by the class of its error where it leaves the engine.
func (c *Installer) run(ctx context.Context, args, env []string, out *output) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.cfg.Dir, append(append([]string(nil), c.cfg.Env...), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = c.cfg.Grace
	if err := cmd.Start(); err != nil {
		return refit.Unreachable(fmt.Errorf("start %s: %w", args[0], err))
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		// What it has left of its group: the group's id is not given to others while one of it lives.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // it has exited with 0; a child of its holds the output open
		return nil
	}
	text := fmt.Errorf("%s: %w%s", args[0], err, out.tail())
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return refit.Unknown(fmt.Errorf("%w (%w)", text, context.Cause(ctx)))
	case !errors.As(err, &exit) || !exit.Exited() || exit.ExitCode() == ExitUnknown:
		return refit.Unknown(text)
	case exit.ExitCode() == ExitUnreachable:
		return refit.Unreachable(text)
	}
	return refit.Refused(text)
}
