package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Rollback orders all receivers to serve a version again.
func Rollback(ctx context.Context, c *messages.Control, to messages.Key, by, reason string) (*OrderRow, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, cli.WithCode(cli.ExitUsage, errors.New("a rollback is recorded with its reason: give one with --reason"))
	}
	o, err := c.Rollback(ctx, to, by, reason)
	switch {
	case errors.Is(err, messages.ErrNotCommitted):
		return nil, fmt.Errorf("%w (refitctl versions lists those that stand)", err)
	case errors.Is(err, messages.ErrFenced):
		return nil, fmt.Errorf("%w (only versions of the newest run can be served)", err)
	case err != nil:
		return nil, err
	}
	return orderRow(o), nil
}

// Write tells what was ordered.
func (o *OrderRow) Write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "order %d: all receivers are to serve %s until a newer version is committed (%s: %s)\n",
		o.N, o.To, printable(o.By), printable(o.Reason))
	return err
}

// rollbackPoll is how often AwaitServing looks at the receivers.
const rollbackPoll = 200 * time.Millisecond

// AwaitServing waits until every receiver that reports serves a version. The error names those that don't.
func AwaitServing(ctx context.Context, c *messages.Control, k messages.Key) error {
	tick := time.NewTicker(rollbackPoll)
	defer tick.Stop()
	for {
		statuses, err := c.Statuses(ctx)
		if err != nil {
			return err
		}
		v := View{Statuses: statuses}
		others := v.named(func(s *messages.Status) bool { return s.Serving != k })
		if len(others) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for receivers to serve %s: %w: not yet: %s", k, context.Cause(ctx), names(others))
		}
	}
}
