package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/wiring"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// config is the program's whole configuration.
type config struct {
	cli.Common
	cli.Version
	wiring.Base
	wiring.Transports
	wiring.Costs

	Name    string `help:"Name of this receiver, unique among the model's." required:"" placeholder:"NAME"`
	Capture string `help:"Capture file (drydock.capture.v1): what each destination rank needs. --installer vllm asks the engine where none is given." placeholder:"FILE"`
	TP      int    `help:"Tensor-parallel size; the capture must have it." default:"1"`
	Ranks   []int  `help:"Destination ranks on this host." default:"0"`
	EP      bool   `help:"Take the capture's expert-parallel cases."`

	ArenaDir  string `help:"Folder for arenas, in shared memory for engines on this host. <dir>/<name>/current/rank-<r>.safetensors is what serves." default:"/dev/shm/drydock" placeholder:"DIR"`
	Arenas    int    `help:"Sets of arenas, at least 2: one serves, one is staged into. An engine that keeps old files mapped for long wants a third." default:"2"`
	HugePages bool   `help:"Put the arenas on huge pages, where the host gives any (refitctl doctor says). It takes longer to start, and spares the processor when it reads and writes them."`

	AllowNarrowing []string      `help:"Globs of parameters that may lose precision by a cast." placeholder:"GLOB"`
	StagingBytes   int64         `help:"Memory beyond the arenas, in bytes." default:"268435456"`
	VerifyFloor    float64       `help:"Share of the bytes read that must be verified, from 0 to 1; below it the version is not applied." default:"0"`
	Stall          time.Duration `help:"Longest time without a finished batch from a trainer rank." default:"30s"`
	ReadAll        bool          `help:"Read what has not changed since the version that serves, too, instead of copying it from there."`
	Every          bool          `help:"Take every version in order, for exact replay, instead of the newest. Publishers must keep them: publisher --keep every."`

	engine
}

func (c *config) check() error {
	if err := c.engine.check(); err != nil {
		return err
	}
	if c.Name == "" || c.Name != messages.Token(c.Name) {
		return fmt.Errorf("--name %q: expected 1 to 64 of A-Z a-z 0-9 _ -", c.Name)
	}
	if c.TP < 1 || len(c.Ranks) == 0 {
		return fmt.Errorf("--tp %d --ranks %v: at least one each", c.TP, c.Ranks)
	}
	for _, r := range c.Ranks {
		if r < 0 || r >= c.TP {
			return fmt.Errorf("--ranks %d: a rank is at least 0 and below --tp %d", r, c.TP)
		}
	}
	return nil
}

// Run follows the newest committed version until ctx ends.
func (c *config) Run(ctx context.Context, log *slog.Logger) (err error) {
	if err := c.check(); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	log = log.With("model", c.Model, "receiver", c.Name)
	installer, err := c.install(maker{receiver: c.Name, arenas: c.arenas(), log: log})
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	asked, err := c.asks(installer)
	if err != nil {
		return err
	}
	var dests []plan.Dest
	if asked == nil { // what is wrong with a file is said before anything is connected
		if dests, err = c.dests(); err != nil {
			return err
		}
	}
	p, err := c.Start(ctx, "drydock-receiver", c.Name, 0, 1, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if asked != nil {
		if dests, err = c.awaitCapture(ctx, p, asked); err != nil {
			return err
		}
	}
	receiver, err := c.receiver(p, dests, installer)
	if err != nil {
		return err
	}
	p.Log.Info("following", "ranks", c.Ranks, "arenas", receiver.ArenaRoot())
	return receiver.Follow(ctx)
}

// receiver opens transports and arenas.
func (c *config) receiver(p *wiring.Process, dests []plan.Dest, installer refit.Installer) (*refit.Receiver, error) {
	transports, err := c.Open(p, wiring.Listen{}, rdma.NewIncarnation())
	if err != nil {
		return nil, err
	}
	costs, err := c.LoadCosts(p.Log)
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, err)
	}
	receiver, err := refit.NewReceiver(refit.ReceiverConfig{
		Name: c.Name, Model: c.Model, Control: p.Control, Transports: transports, Dests: dests, TP: c.TP,
		ArenaRoot: c.arenas(), Arenas: c.Arenas, HugePages: c.HugePages,
		Installer: installer, InstallTimeout: c.InstallTimeout, Engine: c.group(),
		AllowNarrowing: c.AllowNarrowing, StagingBytes: c.StagingBytes, VerifyFloor: c.VerifyFloor, Stall: c.Stall,
		ReadAll: c.ReadAll, Every: c.Every, CostsOf: costs.Of, Metrics: p.Metrics, Logger: p.Log,
		Tracer: p.Telemetry.TracerProvider.Tracer(tracing.Scope), Lines: os.Stderr,
	})
	if err != nil {
		return nil, cli.WithCode(cli.ExitCapacity, fmt.Errorf("%w (--arena-dir %s)", err, c.ArenaDir))
	}
	p.Later(receiver.Close)
	return receiver, nil
}

// arenas is the receiver's own folder.
func (c *config) arenas() string { return filepath.Join(c.ArenaDir, c.Name) }

// dests reads the capture and takes this host's ranks out of it.
func (c *config) dests() ([]plan.Dest, error) {
	b, err := cli.ReadFile(c.Capture, plan.MaxCaptureBytes)
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, fmt.Errorf("read capture: %w", err))
	}
	capture, err := plan.DecodeCapture(b)
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, fmt.Errorf("read capture %s: %w", c.Capture, err))
	}
	var dests []plan.Dest
	for _, r := range c.Ranks {
		d, err := capture.Dest(c.TP, r, c.EP)
		if err != nil {
			return nil, cli.WithCode(cli.ExitInput, fmt.Errorf("read capture %s: %w", c.Capture, err))
		}
		dests = append(dests, d)
	}
	return dests, nil
}
