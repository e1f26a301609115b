package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"slices"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/operator"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/plan"
)

// planCommand plans without moving a byte.
type planCommand struct {
	anyModel
	Capture    string   `help:"Capture file (drydock.capture.v1): what each destination rank needs." required:"" placeholder:"FILE"`
	TP         int      `name:"tp" help:"Tensor-parallel size; the capture must have it." default:"1"`
	Ranks      []int    `help:"Destination ranks that are planned together, as those of one host." default:"0"`
	EP         bool     `name:"ep" help:"Take the capture's expert-parallel cases."`
	Checkpoint string   `help:"Plan against trainers that share this checkpoint, instead of a running model." placeholder:"DIR"`
	Table      []string `help:"Plan against these shard tables: layout blobs as publishers store them, one for each rank, or refit.layouts.v1 files of a whole job." placeholder:"FILE"`
	Layout     string   `help:"With --checkpoint, how trainers share tensors: ${enum}." default:"fsdp" enum:"fsdp,tp,hsdp"`
	Trainers   int      `help:"With --checkpoint, the number of trainer ranks." default:"4"`
	Version    string   `help:"With --model, the version to plan against: V, RUN.V or latest." default:"latest"`

	Select  []string `help:"Plan only copies whose source or parameter matches one of these globs." placeholder:"GLOB"`
	Layers  []int    `help:"Plan only copies of these layers." placeholder:"N"`
	Experts []int    `help:"Plan only copies of these experts." placeholder:"N"`

	AllowNarrowing []string `help:"Globs of parameters that may lose precision by a cast." placeholder:"GLOB"`
	Flat           bool     `help:"Costs of transports that take a descriptor for each run, as nixl does, instead of strided segments."`
	Classic        bool     `help:"Follow the reference planner's rules, and show its counts."`
	MaxSegments    int      `name:"max-segments-per-copy" env:"MX_RESHARD_MAX_SEGMENTS_PER_COPY" help:"With --classic, the contiguous runs of a copy beyond which its source is read whole." default:"64" placeholder:"N"`

	Param     string `help:"Explain this parameter: where each byte comes from, and why it is read as it is." placeholder:"NAME"`
	SVG       string `name:"svg" help:"With --param, draw which rank each byte comes from into this file; - is standard output." placeholder:"FILE"`
	Canonical bool   `help:"Print every batch, segment, scatter and fill: equal inputs give equal bytes."`
	JSON      bool   `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (planCommand) Help() string {
	return `Prints what a receiver would read, with the proof that every byte of every parameter is written exactly once. A plan that
can't be made names each hole, overlap, unknown source and refused cast; exit code 5.

Examples:

    refitctl plan --capture capture.json --tp 2 --ranks 0,1 --checkpoint ./checkpoint --trainers 4
    refitctl plan --capture capture.json --tp 2 --table rank0.layout,rank1.layout
    refitctl plan --capture capture.json --tp 2 --model demo --nats nats://127.0.0.1:4222 --version latest
    refitctl plan --capture capture.json --tp 2 --checkpoint ./checkpoint --layers 0,1 --select '*.mlp.*'
    refitctl plan --capture capture.json --tp 2 --checkpoint ./checkpoint --param model.embed_tokens.weight --svg embed.svg`
}

func (c *planCommand) check() error {
	switch {
	case c.Checkpoint == "" && c.Model == "" && len(c.Table) == 0:
		return errors.New("what do the trainers hold? Name a --checkpoint, --table files, or a --model on a server")
	case c.Checkpoint != "" && len(c.Table) > 0:
		return errors.New("--checkpoint and --table both say what the trainers hold: give one")
	case len(slices.Compact(slices.Sorted(slices.Values(c.Ranks)))) != len(c.Ranks):
		return fmt.Errorf("--ranks %v: the same rank twice", c.Ranks)
	case slices.ContainsFunc(c.Select, brokenGlob):
		return fmt.Errorf("--select %v: one of them is no glob", c.Select)
	case c.SVG != "" && c.Param == "":
		return errors.New("--svg draws one parameter: name it with --param")
	case c.SVG == "-" && c.JSON:
		return errors.New("--svg - and --json both write to standard output")
	case c.MaxSegments < 1:
		return fmt.Errorf("--max-segments-per-copy %d: at least 1", c.MaxSegments)
	case c.Trainers < 1 || len(c.Ranks) == 0:
		return errors.New("--trainers and --ranks: at least one each")
	}
	return nil
}

// brokenGlob reports whether a glob has a syntax error: it would match nothing, silently.
func brokenGlob(glob string) bool {
	_, err := path.Match(glob, "")
	return err != nil
}

// Run plans and shows.
func (c *planCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	if err := c.check(); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	t, err := c.table(ctx, log)
	if err != nil {
		return err
	}
	report, err := operator.MakePlan(t, operator.PlanRequest{
		Capture: c.Capture, TP: c.TP, Ranks: c.Ranks, EP: c.EP, AllowNarrowing: c.AllowNarrowing,
		Select: c.Select, Layers: c.Layers, Experts: c.Experts,
		Flat: c.Flat, Classic: c.Classic, MaxSegments: c.MaxSegments, Param: c.Param, Canonical: c.Canonical,
	})
	if refusal := operator.Refused(err); refusal != nil {
		return errors.Join(operator.Show(out, refusal, c.JSON), refusal.Err())
	}
	if err != nil {
		return err
	}
	if c.SVG != "" {
		if err := c.draw(report, out); err != nil || c.SVG == "-" {
			return err
		}
	}
	return operator.Show(out, report, c.JSON)
}

// table finds what the trainers hold.
func (c *planCommand) table(ctx context.Context, log *slog.Logger) (t *plan.Table, err error) {
	if len(c.Table) > 0 {
		return operator.FileTable(c.Table)
	}
	if c.Checkpoint != "" {
		return operator.CheckpointTable(c.Checkpoint, c.Layout, c.Trainers)
	}
	m := model{NATS: c.NATS, Model: c.Model, Timeout: c.Timeout}
	err = m.opened(ctx, log, func(control *messages.Control) error {
		k, err := operator.FindKey(ctx, control, c.Version)
		if err == nil {
			t, err = operator.PublishedTable(ctx, control, k)
		}
		return err
	})
	return t, err
}

func (c *planCommand) draw(report *operator.PlanReport, out io.Writer) error {
	svg, err := report.Picture(len(c.Ranks), c.Param)
	if err != nil {
		return err
	}
	if c.SVG == "-" {
		_, err := io.WriteString(out, svg)
		return err
	}
	return cli.WithCode(cli.ExitInput, os.WriteFile(c.SVG, []byte(svg), 0o644))
}
