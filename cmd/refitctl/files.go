package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/operator"
)

// checkpointCommand generates the demo's checkpoint.
type checkpointCommand struct {
	Dir     string `arg:"" help:"Folder to write, absent or empty."`
	Seed    uint64 `help:"Seed of the values: the same seed gives the same bytes." default:"1"`
	Tiny    bool   `help:"A few hundred kilobytes of the same form instead of some 200 MB."`
	TP      int    `name:"tp" help:"Tensor-parallel size of the capture." default:"1"`
	Capture string `help:"Also write the default capture of it to this file." placeholder:"FILE"`
}

// Help gives examples.
func (checkpointCommand) Help() string {
	return `The folder is a Hugging Face style mixture-of-experts model with random weights. One that was generated with the same
seed already is left alone, so the command may be repeated.

Examples:

    refitctl checkpoint /tmp/checkpoint
    refitctl checkpoint /tmp/checkpoint --seed 7 --tp 2 --capture /tmp/checkpoint/capture.json`
}

// Run generates the folder, and the capture.
func (c *checkpointCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	made, err := operator.MakeCheckpoint(ctx, c.Dir, checkpoint.GenerateOptions{Seed: c.Seed, Tiny: c.Tiny})
	if err != nil {
		return err
	}
	if made {
		fmt.Fprintf(out, "%s: generated, seed %d\n", c.Dir, c.Seed)
	} else {
		fmt.Fprintf(out, "%s: was generated from seed %d already\n", c.Dir, c.Seed)
	}
	if c.Capture == "" {
		return nil
	}
	return makeCapture(c.Dir, c.TP, c.Capture, log, out)
}

func makeCapture(dir string, tp int, path string, log *slog.Logger, out io.Writer) error {
	notes, err := operator.MakeCapture(dir, tp, path, out)
	if err != nil {
		return err
	}
	for _, n := range notes {
		log.Info(n)
	}
	if path != "-" {
		fmt.Fprintf(out, "%s: capture for tensor-parallel size %d\n", path, tp)
	}
	return nil
}

// captureCommand makes a capture.
type captureCommand struct {
	Checkpoint string `help:"Folder of safetensors files." required:"" placeholder:"DIR"`
	TP         int    `name:"tp" help:"Tensor-parallel size: one case for each rank." default:"1"`
	Output     string `short:"o" help:"File to write; compressed when its name ends in .gz; - is standard output." default:"-" placeholder:"FILE"`
}

// Help gives examples.
func (captureCommand) Help() string {
	return `A capture (drydock.capture.v1) says which views of which checkpoint tensors go where in each destination rank's
parameters. This one is made from tensor names, as vLLM loads the Llama, Qwen and Mixtral families; tensors with other
names go whole to every rank. A capture that an engine's own loader recorded is better where there is one.

Examples:

    refitctl capture --checkpoint ./Qwen3-30B-A3B --tp 4 -o capture.json.gz`
}

// Run makes the capture.
func (c *captureCommand) Run(log *slog.Logger, out io.Writer) error {
	return makeCapture(c.Checkpoint, c.TP, c.Output, log, out)
}
