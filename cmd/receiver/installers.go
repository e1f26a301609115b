package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/wiring"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/refit/install/command"
	"github.com/drydock-rl/drydock/pkg/refit/install/httpcall"
	"github.com/drydock-rl/drydock/pkg/refit/install/sglang"
	"github.com/drydock-rl/drydock/pkg/refit/install/vllm"
)

// engine says how a staged version comes into the engine.
type engine struct {
	Installer      string        `help:"How the engine takes a version: shm (it reads the arena by its name), exec (a command, --exec), http (calls, --http-steps), vllm or sglang (their own calls, --engine-url)." default:"shm" placeholder:"NAME"`
	InstallTimeout time.Duration `help:"Longest time that an installation may take; then the old version is installed again." default:"2m"`

	Exec        []string `help:"Program and arguments of --installer exec, one flag for each (--exec=ARG); templates such as {{.Dir}}, {{.Version}}, {{json .Files}}. Exit codes: 0 it serves, 69 not reachable, 70 not known, else refused." sep:"none" placeholder:"ARG"`
	HTTPSteps   string   `name:"http-steps" help:"YAML file of the calls of --installer http; docs/installers.md has the form." placeholder:"FILE"`
	EngineURL   string   `name:"engine-url" help:"The engine's server, for --installer vllm and sglang." placeholder:"URL"`
	EngineKey   string   `name:"engine-key-file" help:"File with the engine's API key." placeholder:"FILE"`
	EngineDrain string   `name:"engine-drain" help:"What happens to requests that run: wait, keep or abort of vllm (default wait); retract, abort or in_place of sglang (default retract)." placeholder:"HOW"`
	EngineOwner string   `name:"engine-owner" help:"Who updates the engine, for --installer vllm: one at a time, and the same after a restart. Default: --name." placeholder:"NAME"`

	EngineGroup         string        `name:"engine-group" help:"Name of an engine that several receivers feed, as on several hosts. They install a version together or not at all." placeholder:"NAME"`
	EngineGroupSize     int           `name:"engine-group-size" help:"How many receivers feed it." default:"1" placeholder:"N"`
	EngineGroupPatience time.Duration `name:"engine-group-patience" help:"Longest wait for the others to stage a version, and then to install it." default:"5m"`
}

// installers makes the installer of each --installer name. Another engine is one more line here, and its folder beside
// those of pkg/refit/install.
var installers = map[string]func(*engine, maker) (refit.Installer, error){
	"shm":    func(*engine, maker) (refit.Installer, error) { return refit.Shm, nil },
	"exec":   (*engine).command,
	"http":   (*engine).calls,
	"vllm":   (*engine).vllm,
	"sglang": (*engine).sglang,
}

// maker is what installers are given of the program.
type maker struct {
	receiver string // its name
	arenas   string // the folder in which its slots lie
	log      *slog.Logger
}

// install makes the installer that the flags ask for.
func (e *engine) install(m maker) (refit.Installer, error) {
	newInstaller, known := installers[e.Installer]
	if !known {
		return nil, fmt.Errorf("--installer %q: expected one of %s", e.Installer, strings.Join(slices.Sorted(maps.Keys(installers)), ", "))
	}
	i, err := newInstaller(e, m)
	if err != nil {
		return nil, fmt.Errorf("--installer %s: %w", e.Installer, err)
	}
	return i, nil
}

// capturer is an installer whose engine records what its own loaders copy.
type capturer interface {
	// Capture returns the path of a capture file on the engine's host. Making one takes up to minutes, the first time.
	Capture(ctx context.Context) (string, error)
}

// asks gives the engine that is to be asked for a capture; nil where a file is named.
func (c *config) asks(i refit.Installer) (capturer, error) {
	engine, ok := i.(capturer)
	switch {
	case c.Capture != "":
		return nil, nil
	case !ok:
		return nil, cli.WithCode(cli.ExitUsage, fmt.Errorf("--installer %s needs --capture: only vllm can be asked for one", c.Installer))
	}
	return engine, nil
}

// awaitCapture has the engine tell what it needs, with a status meanwhile: an engine may take minutes to load its model and
// to tell, and who looks at the receivers is to see what this one waits for.
func (c *config) awaitCapture(ctx context.Context, p *wiring.Process, engine capturer) ([]plan.Dest, error) {
	host, err := rdma.HostID()
	if err != nil {
		return nil, cli.WithCode(cli.ExitUnavailable, err)
	}
	const what = "the engine to tell what it needs"
	p.Waits(what)
	defer p.Waits("")
	waiting, stop := context.WithCancel(ctx)
	var kept sync.WaitGroup
	defer kept.Wait()
	defer stop()
	kept.Go(func() {
		refit.KeepStatus(waiting, p.Control, messages.Status{
			Role: messages.RoleReceiver, Name: c.Name, Host: rdma.HostName(host), Ranks: c.Ranks,
			StageState: "waiting for " + what,
		}, p.Log)
	})
	p.Log.Info("asking the engine for the capture of its model", "engine", c.EngineURL)
	if c.Capture, err = engine.Capture(ctx); err != nil {
		return nil, cli.WithCode(cli.ExitUnavailable,
			fmt.Errorf("ask the engine at %s for a capture: %w (or name a file with --capture)", c.EngineURL, err))
	}
	p.Log.Info("the engine has told what it needs", "capture", c.Capture)
	return c.dests()
}

// check refuses flags that don't go together before anything is connected.
func (e *engine) check() error {
	for _, f := range []struct {
		flag, installers string
		set              bool
	}{
		{"--exec", "exec", len(e.Exec) > 0},
		{"--http-steps", "http", e.HTTPSteps != ""},
		{"--engine-url", "vllm sglang", e.EngineURL != ""},
	} {
		switch wanted := slices.Contains(strings.Fields(f.installers), e.Installer); {
		case wanted && !f.set:
			return fmt.Errorf("--installer %s needs %s", e.Installer, f.flag)
		case f.set && !wanted:
			return fmt.Errorf("%s is for --installer %s, found --installer %s", f.flag, strings.ReplaceAll(f.installers, " ", " or "), e.Installer)
		}
	}
	switch {
	case e.EngineGroupSize < 1 || e.EngineGroupSize > messages.MaxMembers:
		return fmt.Errorf("--engine-group-size %d: expected 1 to %d", e.EngineGroupSize, messages.MaxMembers)
	case (e.EngineGroup != "") != (e.EngineGroupSize > 1):
		return fmt.Errorf("--engine-group %q --engine-group-size %d: a group has a name and at least two receivers", e.EngineGroup, e.EngineGroupSize)
	case e.EngineGroup != "" && e.EngineGroup != messages.Token(e.EngineGroup):
		return fmt.Errorf("--engine-group %q: expected up to 64 of A-Z a-z 0-9 _ -", e.EngineGroup)
	}
	return nil
}

// group is the same for pkg/refit.
func (e *engine) group() refit.Engine {
	return refit.Engine{Name: e.EngineGroup, Size: e.EngineGroupSize, Patience: e.EngineGroupPatience}
}

func (e *engine) command(maker) (refit.Installer, error) {
	return command.New(command.Config{Args: e.Exec, Env: os.Environ()})
}

func (e *engine) calls(maker) (refit.Installer, error) {
	f, err := os.Open(e.HTTPSteps)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cfg, err := httpcall.Load(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.HTTPSteps, err)
	}
	return httpcall.New(cfg)
}

func (e *engine) vllm(m maker) (refit.Installer, error) {
	key, err := e.key()
	if err != nil {
		return nil, err
	}
	owner := e.EngineOwner
	if owner == "" {
		owner = m.receiver
	}
	return vllm.New(vllm.Config{
		URL: e.EngineURL, APIKey: key, Owner: owner, Root: m.arenas, Drain: vllm.Drain(e.EngineDrain), ApplyTimeout: e.InstallTimeout, Logger: m.log,
	})
}

func (e *engine) sglang(m maker) (refit.Installer, error) {
	key, err := e.key()
	if err != nil {
		return nil, err
	}
	return sglang.New(sglang.Config{URL: e.EngineURL, APIKey: key, Mode: sglang.Mode(e.EngineDrain), UpdateTimeout: e.InstallTimeout, Logger: m.log})
}

// maxKey bounds a key file, in bytes.
const maxKey = 64 << 10

// key reads the API key, if there is one.
func (e *engine) key() (string, error) {
	if e.EngineKey == "" {
		return "", nil
	}
	b, err := cli.ReadFile(filepath.Clean(e.EngineKey), maxKey)
	if err != nil {
		return "", fmt.Errorf("read --engine-key-file: %w", err)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return "", errors.New("read --engine-key-file: it is empty")
	}
	return string(b), nil
}
