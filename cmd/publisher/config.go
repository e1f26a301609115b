package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/internal/trainer"
	"github.com/drydock-rl/drydock/internal/wiring"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/refit"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// config is the program's whole configuration. Without a command it publishes a checkpoint.
type config struct {
	cli.Common
	cli.Version

	Checkpoint checkpointCommand `cmd:"" default:"withargs" help:"Stand in for a trainer: serve one rank's shards of a checkpoint, and publish versions of them."`
	Serve      serveCommand      `cmd:"" help:"Serve the memory of trainers in other languages, such as Python, over a Unix socket."`
}

// checkpointCommand is the trainer that stands in for real ones.
type checkpointCommand struct {
	wiring.Base
	wiring.Transports
	wiring.Listen

	Rank       int    `help:"Rank of this trainer, from 0." default:"0"`
	World      int    `help:"Number of trainer ranks." default:"1"`
	Job        string `help:"Name of the launch: the same for all its ranks, and for a rank that is started again." default:"default" placeholder:"ID"`
	Checkpoint string `help:"Folder of safetensors files that the shards are cut from." required:"" placeholder:"DIR"`
	Layout     string `help:"How trainers share tensors: ${enum}." default:"fsdp" enum:"fsdp,tp,hsdp"`

	ServedLayout string `help:"How shards lie in served memory: ${enum}. Blocks of columns make a tensor-parallel slice a few long runs; auto serves them where receivers take slices." default:"plain" enum:"plain,blocks,auto"`

	Keep         messages.Keep `help:"Versions that stay readable: a number of the newest, or every (every:RECEIVER,… for named ones) to hold each until receivers are through with it. One slot more is needed." default:"1" placeholder:"POLICY"`
	Slots        int           `help:"Buffers that versions alternate between; with 2 a version is read while the next is written." default:"2"`
	TileMinBytes int64         `help:"Smallest tile that gets a digest of its own. Finer tiles verify thinner slices. 0: 16 KiB." default:"0"`

	Versions       uint64        `help:"Versions to publish in this run; 0: until stopped. A rank that joins its run again goes on after the last one." default:"0"`
	Interval       time.Duration `help:"Pause between versions." default:"1s"`
	AwaitReceivers int           `help:"Receivers that must serve a version before the next is made." default:"0"`
	AwaitTimeout   time.Duration `help:"Longest wait for receivers without any of them getting on." default:"2m"`
	CommitTimeout  time.Duration `help:"Longest wait for the other ranks: to take the run, and to publish their part of a version, which is then ended by name." default:"10m"`
	DrainTimeout   time.Duration `help:"Longest wait for the readers of a version whose buffer is needed again." default:"10m"`
	LeaveTimeout   time.Duration `help:"Longest wait for readers when stopped." default:"20s"`
	Seed           uint64        `help:"Seed of the changes that each version makes to the values." default:"1"`
}

func (c *checkpointCommand) check() error {
	switch {
	case c.World < 1 || c.Rank < 0 || c.Rank >= c.World:
		return fmt.Errorf("--rank %d --world %d: a rank is at least 0 and below the world size", c.Rank, c.World)
	case c.Slots < 1 || c.Slots > 8:
		return fmt.Errorf("--slots %d: expected 1 to 8", c.Slots)
	}
	return checkKeep(c.Keep, c.Slots)
}

// checkKeep names the flags where the slots are too few for the policy.
func checkKeep(k messages.Keep, slots int) error {
	if err := k.CheckSlots(slots); err != nil {
		return fmt.Errorf("--keep %s --slots %d: %w", k, slots, err)
	}
	return nil
}

// Run serves until ctx ends.
func (c *checkpointCommand) Run(ctx context.Context, log *slog.Logger) (err error) {
	if err := c.check(); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	source, shards, err := c.cut()
	if err != nil {
		return cli.WithCode(cli.ExitInput, err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	name := fmt.Sprintf("publisher-%d", c.Rank)
	p, err := c.Start(ctx, "drydock-publisher", name, c.Rank, c.World, log.With("model", c.Model, "rank", c.Rank))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	publisher, err := c.publisher(ctx, p, name, shards)
	if err != nil {
		return coded(err)
	}
	p.Log.Info("serving", "run", publisher.Run().Run, "bytes", shards.Nbytes(), "slots", c.Slots)
	t := &trainer.Trainer{Publisher: publisher, Shards: shards, Control: p.Control, Logger: p.Log, Steps: trainer.Steps{
		Versions: c.Versions, Interval: c.Interval, AwaitReceivers: c.AwaitReceivers, AwaitTimeout: c.AwaitTimeout, Seed: c.Seed,
		Served: served.Mode(c.ServedLayout),
	}}
	return coded(t.Run(ctx, c.LeaveTimeout))
}

// coded gives errors that others are the cause of their exit code: ranks that did not come, servers that did not answer.
func coded(err error) error {
	for _, cause := range []error{
		messages.ErrIncomplete, messages.ErrUnavailable, messages.ErrNoStream, messages.ErrPermission, context.DeadlineExceeded,
	} {
		if errors.Is(err, cause) {
			return cli.WithCode(cli.ExitUnavailable, err)
		}
	}
	return err
}

// publisher opens transports and memory, and joins the run.
func (c *checkpointCommand) publisher(ctx context.Context, p *wiring.Process, name string, shards *trainer.Shards) (*refit.Publisher, error) {
	if err := c.serve(ctx, p, shards); err != nil {
		return nil, err
	}
	incarnation := rdma.NewIncarnation()
	transports, err := c.Open(p, c.Listen, incarnation)
	if err != nil {
		return nil, err
	}
	slots, err := allocate(shards.Nbytes(), c.Slots)
	if err != nil {
		return nil, cli.WithCode(cli.ExitCapacity, err)
	}
	publisher, err := refit.NewPublisher(ctx, refit.PublisherConfig{
		Name: name, Model: c.Model, Incarnation: incarnation, Rank: c.Rank, World: c.World, Job: c.Job,
		Control: p.Control, Transports: transports, Slots: slots, Layout: shards.Layout(), Keep: c.Keep,
		CommitTimeout: c.CommitTimeout, DrainTimeout: c.DrainTimeout, Metrics: p.Metrics,
		Logger: p.Log, Tracer: p.Telemetry.TracerProvider.Tracer(tracing.Scope), Details: p.Details.Tracer(tracing.Scope),
	})
	if err != nil {
		return nil, err
	}
	p.Later(publisher.Close)
	return publisher, nil
}

// serve decides how the shards lie at first. Under auto the receivers that are there already are asked.
func (c *checkpointCommand) serve(ctx context.Context, p *wiring.Process, shards *trainer.Shards) error {
	var asked served.Asked
	if served.Mode(c.ServedLayout) == served.Auto {
		statuses, err := p.Control.Statuses(ctx)
		if err != nil {
			return fmt.Errorf("ask receivers what they read: %w", err)
		}
		asked = served.AskedBy(statuses)
	}
	p.Log.Info("served layout", "mode", c.ServedLayout, "tp", asked.TP)
	return shards.Serve(served.Mode(c.ServedLayout), asked)
}

// cut opens the checkpoint and finds this rank's shards of it.
func (c *checkpointCommand) cut() (*checkpoint.Checkpoint, *trainer.Shards, error) {
	kind, err := shardlayout.ParseKind(c.Layout)
	if err != nil {
		return nil, nil, err
	}
	source, err := checkpoint.Open(c.Checkpoint)
	if err != nil {
		return nil, nil, err
	}
	shards, err := trainer.Cut(source, kind, c.Rank, c.World, tiles.Options{MinBytes: c.TileMinBytes})
	if err != nil {
		return nil, nil, errors.Join(err, source.Close())
	}
	return source, shards, nil
}

// allocate makes the slots. They end with the process: nothing else may free memory that readers may still read.
func allocate(nbytes int64, n int) ([]*rdma.Memory, error) {
	slots := make([]*rdma.Memory, n)
	for i := range slots {
		m, err := rdma.Alloc(nbytes, rdma.AllocOptions{Name: fmt.Sprintf("drydock-slot-%d", i)})
		if err != nil {
			return nil, fmt.Errorf("allocate slot %d of %d: %w", i, n, err)
		}
		slots[i] = m
	}
	return slots, nil
}
