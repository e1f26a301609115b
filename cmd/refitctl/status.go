package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/drydock-rl/drydock/internal/operator"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// look shows what answer makes of a model's present state.
func (m *model) look(ctx context.Context, log *slog.Logger, out io.Writer, asJSON bool, answer func(*operator.View) operator.Answer) error {
	return m.opened(ctx, log, func(c *messages.Control) error {
		v, err := operator.Look(ctx, c, time.Now())
		if err != nil {
			return err
		}
		return operator.Show(out, answer(v), asJSON)
	})
}

// versionsCommand lists versions.
type versionsCommand struct {
	model
	Limit int  `help:"Newest versions to show; 0: all." default:"20"`
	JSON  bool `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (versionsCommand) Help() string {
	return `A version is publishing until every rank's table is there, then committed. It is fenced once a newer run was taken,
retired when its publishers withdrew it, abandoned when they gave it up. The ends of versions are shown for two minutes.

Examples:

    refitctl versions --model qwen3-30b
    refitctl versions --model qwen3-30b --json | jq -r '.versions[] | select(.newest) | .version'`
}

// Run lists the versions.
func (c *versionsCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	return c.look(ctx, log, out, c.JSON, func(v *operator.View) operator.Answer { return v.VersionList(c.Limit) })
}

// receiversCommand lists receivers.
type receiversCommand struct {
	model
	JSON bool `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (receiversCommand) Help() string {
	return `A receiver that has said nothing for a minute is not listed.

Examples:

    refitctl receivers --model qwen3-30b
    refitctl receivers --model qwen3-30b --json | jq -r '.receivers[] | select(.lag > 0) | .name'`
}

// Run lists the receivers.
func (c *receiversCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	return c.look(ctx, log, out, c.JSON, func(v *operator.View) operator.Answer { return v.ReceiverList() })
}

// publishersCommand lists publishers.
type publishersCommand struct {
	model
	JSON bool `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (publishersCommand) Help() string {
	return `Each publisher has slots, buffers that versions alternate between. A slot is free to be written again when nobody
holds a lease on its version.

Examples:

    refitctl publishers --model qwen3-30b`
}

// Run lists the publishers.
func (c *publishersCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	return c.look(ctx, log, out, c.JSON, func(v *operator.View) operator.Answer { return v.PublisherList() })
}
