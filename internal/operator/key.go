package operator

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Latest names the version that receivers should serve now.
const Latest = "latest"

// FindKey reads how people name a version: RUN.V, or V of the newest run, or "latest".
func FindKey(ctx context.Context, c *messages.Control, text string) (messages.Key, error) {
	switch {
	case text == Latest:
		return newest(ctx, c)
	case strings.Contains(text, "."):
		k, err := messages.ParseKey(text)
		return k, cli.WithCode(cli.ExitUsage, err)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return messages.Key{}, cli.WithCode(cli.ExitUsage, fmt.Errorf("%q is no version: expected V, RUN.V or %s", text, Latest))
	}
	run, ok, err := c.Run(ctx)
	if err != nil {
		return messages.Key{}, fmt.Errorf("find version %d: %w", n, err)
	}
	if !ok {
		return messages.Key{}, fmt.Errorf("find version %d: no run of model %q was ever taken, so it has no versions", n, c.Model())
	}
	return messages.Key{Run: run.Run, Version: n}, nil
}

func newest(ctx context.Context, c *messages.Control) (messages.Key, error) {
	k, ok, err := c.Newest(ctx)
	if err != nil {
		return messages.Key{}, fmt.Errorf("find the latest version: %w", err)
	}
	if !ok {
		return messages.Key{}, fmt.Errorf("find the latest version of model %q: %w: none of the newest run is, yet", c.Model(), messages.ErrNotCommitted)
	}
	return k, nil
}
