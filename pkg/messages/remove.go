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
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Deadline)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("remove model %q: %w", cfg.Model, err)
	}
	for _, s := range cfg.streams() {
		if err := js.DeleteStream(ctx, s.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove model %q: delete stream %s: %w", cfg.Model, s.Name, explainJS(err))
		}
	}
	return nil
}
