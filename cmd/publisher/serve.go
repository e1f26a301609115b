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
	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/internal/sidecar"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/internal/wiring"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// serveCommand is the sidecar of trainers in other languages.
type serveCommand struct {
	wiring.Base
	wiring.Transports
	wiring.Listen

	Socket       string        `help:"Unix socket to be asked on, by this user only. One process may serve one rank, or all ranks of a host." required:"" placeholder:"PATH"`
	ArenaDir     string        `help:"Folder in shared memory that the trainers see too. Default: /dev/shm/drydock-<uid>." placeholder:"DIR"`
	Keep         messages.Keep `help:"Versions that stay readable: a number of the newest, or every (every:RECEIVER,… for named ones) to hold each until receivers are through with it. One slot more is needed." default:"1" placeholder:"POLICY"`
	Slots        int           `help:"Buffers of each rank that versions alternate between." default:"2"`
	TileMinBytes int64         `help:"Smallest tile that gets a digest of its own. Finer tiles verify thinner slices. 0: 16 KiB." default:"0"`

	ServedLayout string `help:"How shards lie in served memory: ${enum}. Blocks of columns make a tensor-parallel slice a few long runs, and cost the trainer's copy some of its speed; auto serves them if receivers that are there when a rank attaches take slices." default:"plain" enum:"plain,blocks,auto"`

	CommitTimeout time.Duration `help:"Longest wait for the other ranks: to take the run, and to publish their part of a version, which is then ended by name." default:"10m"`
	DrainTimeout  time.Duration `help:"Longest wait for the readers of a version whose buffer is needed again." default:"10m"`
	Grace         time.Duration `help:"How long the versions of a trainer that died stay readable, and its arena waits for it." default:"10m"`
	Idle          time.Duration `help:"The same for a trainer in another container, whose process can't be seen, since its last request." default:"1h"`
	LeaveTimeout  time.Duration `help:"Longest wait for readers when stopped." default:"20s"`
	ExitIdle      time.Duration `help:"Leave when there was no arena for this long; 0: stay. For sidecars that a trainer starts." default:"0"`
}

// Help tells where the API is described.
func (serveCommand) Help() string {
	return `Serves the versions of trainers that are not written in Go, such as those of the Python package drydock: they write
into shared memory that this process owns. docs/sidecar.md has the API.

Examples:

    publisher serve --model qwen3-30b --socket /run/user/1000/drydock.sock
    curl --unix-socket /run/user/1000/drydock.sock http://localhost/v1/status`
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, log *slog.Logger) (err error) {
	if c.Slots < 2 || c.Slots > 8 {
		return cli.WithCode(cli.ExitUsage, fmt.Errorf("--slots %d: expected 2 to 8", c.Slots))
	}
	if err := checkKeep(c.Keep, c.Slots); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	listener, err := sidecar.Listen(c.Socket)
	if err != nil {
		return cli.WithCode(cli.ExitCapacity, err)
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	p, err := c.Start(ctx, "drydock-publisher", "sidecar-"+filepath.Base(c.Socket), 0, 1, log.With("model", c.Model))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	s, err := sidecar.New(ctx, c.config(p))
	if err != nil {
		return cli.WithCode(cli.ExitCapacity, err)
	}
	p.Log.Info("serving", "socket", c.Socket, "api", sidecar.APIVersion)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	go c.leaveWhenIdle(serving, s, stop, p.Log)
	err = s.Serve(serving, listener)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.LeaveTimeout)
	defer cancel()
	return errors.Join(err, coded(s.Close(last)))
}

func (c *serveCommand) config(p *wiring.Process) sidecar.Config {
	root := c.ArenaDir
	if root == "" {
		root = fmt.Sprintf("/dev/shm/drydock-%d", os.Getuid())
	}
	return sidecar.Config{
		Model: c.Model, Control: p.Control, ArenaRoot: root, Slots: c.Slots, Keep: c.Keep, Tiles: tiles.Options{MinBytes: c.TileMinBytes},
		Served:        served.Mode(c.ServedLayout),
		CommitTimeout: c.CommitTimeout, DrainTimeout: c.DrainTimeout, Grace: c.Grace, Idle: c.Idle,
		Logger: p.Log, Metrics: p.Metrics, Tracer: p.Telemetry.TracerProvider.Tracer(tracing.Scope), Details: p.Telemetry.TracerProvider,
		Transports: func(incarnation string) ([]rdma.Transport, func() error, error) {
			part := &wiring.Process{Log: p.Log} // ends with its arena, not with the program
			ts, err := c.Open(part, c.Listen, incarnation)
			if err != nil {
				return nil, nil, errors.Join(err, part.Close())
			}
			return ts, part.Close, nil
		},
	}
}

// idleLook is how often is looked whether there is anything to serve.
const idleLook = 500 * time.Millisecond

// leaveWhenIdle stops a sidecar that nobody uses any more.
func (c *serveCommand) leaveWhenIdle(ctx context.Context, s *sidecar.Sidecar, stop func(), log *slog.Logger) {
	if c.ExitIdle <= 0 {
		return
	}
	tick := time.NewTicker(idleLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if since, idle := s.IdleSince(); idle && time.Since(since) >= c.ExitIdle {
			log.Info("leaving: nobody has an arena here", "for", c.ExitIdle)
			stop()
			return
		}
	}
}
