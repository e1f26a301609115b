package messages

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Remove deletes the model's stream and buckets with all that is in them: every version, lease and status. It is for
// operators and for demonstrations; nothing of the protocol calls it. What is not there is no error.
func Remove(ctx context.Context, nc *nats.Conn, cfg Config) error {
	return administer(ctx, nc, cfg, "remove", func(ctx context.Context, js jetstream.JetStream, cfg Config) error {
		for _, s := range cfg.streams() {
			if err := js.DeleteStream(ctx, s.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("delete stream %s: %w", s.Name, explainJS(err))
			}
		}
		return nil
	})
}
