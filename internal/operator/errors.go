package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Coded gives an error of the control plane its exit code, and says what to do where that is known. An exit code that
// err carries already wins.
func Coded(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, messages.ErrConfig):
		err = fmt.Errorf("%w (nothing was changed; give these settings, or make room with refitctl remove)", err)
	case errors.Is(err, messages.ErrNoStream):
		err = fmt.Errorf("%w (refitctl init creates a model's stream and buckets)", err)
	case errors.Is(err, nats.ErrNoResponders):
		err = fmt.Errorf("%w (is JetStream on? nats-server -js)", err)
	case errors.Is(err, messages.ErrUnavailable), errors.Is(err, messages.ErrPermission), errors.Is(err, context.DeadlineExceeded):
	default:
		return err
	}
	return cli.WithCode(cli.ExitUnavailable, err)
}
