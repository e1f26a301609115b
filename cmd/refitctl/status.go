package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
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

// watchCommand follows a model.
type watchCommand struct {
	model
	Interval time.Duration `help:"How often to look when nothing is announced." default:"500ms"`
	JSON     bool          `name:"json" help:"Write one JSON object a line."`
}

// Help gives examples.
func (watchCommand) Help() string {
	return `The first lines are the present state. Ctrl-C ends it with exit code 0.

Examples:

    refitctl watch --model qwen3-30b
    refitctl watch --model qwen3-30b --json | jq -c 'select(.kind == "version")'`
}

// Run writes events until the context ends.
func (c *watchCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	return c.opened(ctx, log, func(control *messages.Control) error {
		return operator.Watch(ctx, control, out, operator.WatchOptions{Interval: c.Interval, JSON: c.JSON})
	})
}

// whyCommand explains a version.
type whyCommand struct {
	model
	Version string `arg:"" optional:"" help:"V, RUN.V or latest. Default: the newest that anybody speaks of, committed or not."`
	JSON    bool   `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (whyCommand) Help() string {
	return `Which ranks have not published and what their publishers say, whose table contradicts what, who holds leases, and
what each receiver says of the version.

Examples:

    refitctl why --model qwen3-30b
    refitctl why 1.42 --model qwen3-30b`
}

// Run explains.
func (c *whyCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	return c.opened(ctx, log, func(control *messages.Control) error {
		var k messages.Key
		if c.Version != "" {
			var err error
			if k, err = operator.FindKey(ctx, control, c.Version); err != nil {
				return err
			}
		}
		v, err := operator.Look(ctx, control, time.Now())
		if err != nil {
			return err
		}
		e, err := operator.Why(ctx, control, v, k)
		if err != nil {
			return err
		}
		return operator.Show(out, e, c.JSON)
	})
}

// rollbackCommand gives an order.
type rollbackCommand struct {
	model
	Version string        `arg:"" help:"V or RUN.V, of the newest run and still held by its publishers."`
	Reason  string        `help:"Why: it is recorded with the order." required:""`
	Wait    time.Duration `help:"Wait so long until every receiver serves it; 0: only give the order." default:"0"`
	JSON    bool          `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (rollbackCommand) Help() string {
	return `The order is recorded under the next number, for all to see. It holds until a newer version is committed. Publishers must
still hold the version: its trainer's --slots and retention bound how far back that is.

Examples:

    refitctl rollback 41 --model qwen3-30b --reason "42 answers in Latin" --wait 30s`
}

// Run gives the order.
func (c *rollbackCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	return c.opened(ctx, log, func(control *messages.Control) error {
		k, err := operator.FindKey(ctx, control, c.Version)
		if err != nil {
			return err
		}
		order, err := operator.Rollback(ctx, control, k, whoami(), c.Reason)
		if err != nil {
			return err
		}
		if err := operator.Show(out, order, c.JSON); err != nil || c.Wait == 0 {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, c.Wait, fmt.Errorf("%v have passed", c.Wait))
		defer cancel()
		return operator.AwaitServing(ctx, control, k)
	})
}

// whoami names the operator in records: user and host.
func whoami() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
