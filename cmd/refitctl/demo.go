package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/drydock-rl/drydock/internal/demo"
)

// demoCommand has a flag for each of demo.Options.
type demoCommand struct {
	Checkpoint string        `help:"Folder of safetensors files, single or sharded with an index. Default: a generated mixture-of-experts checkpoint of some 200 MB." placeholder:"DIR"`
	Capture    string        `help:"Capture file (drydock.capture.v1) with cases for tensor-parallel size --receivers. Default: made from the checkpoint's tensor names." placeholder:"FILE"`
	Trainers   int           `help:"Trainer ranks." default:"4"`
	Layout     string        `help:"How trainers share tensors: ${enum}." default:"fsdp" enum:"fsdp,tp,hsdp"`
	Receivers  int           `help:"Receivers, which is the tensor-parallel size." default:"2"`
	Versions   int           `help:"Versions to publish." default:"3"`
	Transport  string        `help:"How bytes move: ${enum}." default:"auto" enum:"auto,local,nixl,tcp"`
	Seed       uint64        `help:"Seed of the generated checkpoint and of the changes between versions." default:"1"`
	NATS       string        `help:"Use a running NATS server instead of an embedded one. What the demo makes there is removed at the end." placeholder:"URL"`
	OTLP       string        `help:"Send all traces here too: http(s)://host:port or grpc(s)://host:port." placeholder:"URL"`
	ArenaDir   string        `help:"Where the demo makes a folder for arenas." default:"/dev/shm" placeholder:"DIR"`
	BinDir     string        `help:"Folder of the publisher and receiver programs. Default: this program's." placeholder:"DIR"`
	Timeout    time.Duration `help:"Longest time for the whole demo." default:"5m"`
	Keep       bool          `help:"Leave everything running until Ctrl-C, and say how to look around. Files stay even then."`
	JSON       bool          `name:"json" help:"Write the results as JSON; progress goes to standard error."`
}

// Run runs the demo.
func (c *demoCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	var progress io.Writer
	if c.JSON {
		progress = os.Stderr // standard output is for the program that asked
	}
	return demo.Run(ctx, demo.Options{
		Checkpoint: c.Checkpoint, Capture: c.Capture, Layout: c.Layout, Trainers: c.Trainers, Receivers: c.Receivers,
		Versions: c.Versions, Transport: c.Transport, Seed: c.Seed, NATS: c.NATS, OTLP: c.OTLP,
		ArenaDir: c.ArenaDir, BinDir: c.BinDir, Timeout: c.Timeout, Keep: c.Keep, JSON: c.JSON, Progress: progress,
	}, out, log)
}
