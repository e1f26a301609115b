package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
)

// built is what all tests share, made once: programs, a checkpoint and its captures. Only read after TestMain.
var built struct {
	bin        string // folder of the programs
	checkpoint string // folder
	captures   map[int]string
}

// seed of the generated checkpoint, and of the changes between versions.
const seed = 1

func TestMain(m *testing.M) {
	if spec := os.Getenv(actorVariable); spec != "" {
		os.Exit(act(spec)) // this is a process that a test has started
	}
	dir, err := os.MkdirTemp("", "drydock-integration-")
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the integration tests:", err)
		_ = os.RemoveAll(dir)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if left := living.list(); len(left) > 0 {
			fmt.Fprintln(os.Stderr, "processes left running:", left)
			code = 1
		}
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// build compiles the programs as the tests are compiled, and generates the checkpoint and captures for 1 and 2 ranks.
func build(dir string) error {
	built.bin = filepath.Join(dir, "bin")
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", built.bin + "/"} // linking is most of the time
	if raced {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "../cmd/...")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	built.checkpoint = filepath.Join(dir, "checkpoint")
	if err := checkpoint.Generate(context.Background(), built.checkpoint, checkpoint.GenerateOptions{Seed: seed, Tiny: true}); err != nil {
		return err
	}
	built.captures = map[int]string{}
	for _, tp := range []int{1, 2} {
		path := filepath.Join(dir, fmt.Sprintf("capture-%d.json", tp))
		if err := writeCapture(built.checkpoint, tp, path); err != nil {
			return err
		}
		built.captures[tp] = path
	}
	return nil
}

// writeCapture makes the default capture of a checkpoint.
func writeCapture(dir string, tp int, path string) error {
	source, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	c, err := capturegen.Generate(source, tp)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := c.Encode(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// living are the processes that have not been waited for.
var living = &roll{names: map[*process]string{}}

type roll struct {
	mu    sync.Mutex
	names map[*process]string
}

func (r *roll) add(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[p] = fmt.Sprintf("%s (pid %d)", p.name, p.cmd.Process.Pid)
}

func (r *roll) remove(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.names, p)
}

func (r *roll) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, name := range r.names {
		names = append(names, name)
	}
	return names
}
