package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/drydock-rl/drydock/internal/operator"
)

// healthCommand asks one process.
type healthCommand struct {
	URL     string        `arg:"" name:"url" help:"The process's /readyz (may it be counted on) or /healthz (may it go on), at its --admin address."`
	Timeout time.Duration `help:"Longest wait for the answer." default:"3s"`
}

// Help gives examples.
func (healthCommand) Help() string {
	return `Exit code 0 if the answer is 200, 1 if checks fail, which are named, 3 if nobody answers.

Examples:

    refitctl health http://127.0.0.1:9464/readyz`
}

// Run asks.
func (c *healthCommand) Run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %v", c.Timeout))
	defer cancel()
	if err := operator.Health(ctx, c.URL); err != nil {
		return err
	}
	fmt.Fprintln(out, "ok")
	return nil
}
