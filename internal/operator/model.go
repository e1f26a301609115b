package operator

import (
	"context"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Created is the answer of refitctl init.
type Created struct {
	Model    string   `json:"model"`
	Stream   string   `json:"stream"`
	Buckets  []string `json:"buckets"`
	Storage  string   `json:"storage"` // "file" or "memory"
	Replicas int      `json:"replicas"`
	MaxBytes int64    `json:"max_bytes,omitempty"` // 0: the default of package messages
	// Durability says what a crash of the servers' machines costs.
	Durability string `json:"durability"`
}

// Init creates a model's stream and buckets. What exists as wanted is left alone; what differs is an error that names
// each difference, and then nothing is made. A monitor, the address of a server's monitoring pages, lets it look
// whether that server syncs; "" is none.
func Init(ctx context.Context, nc *nats.Conn, cfg messages.Config, monitor string) (*Created, error) {
	if err := messages.Init(ctx, nc, cfg); err != nil {
		return nil, err
	}
	c := &Created{Model: cfg.Model, Storage: "file", Replicas: cfg.Replicas, MaxBytes: cfg.MaxBytes}
	c.Stream, c.Buckets = places(cfg.Model)
	if cfg.Memory {
		c.Storage = "memory"
	}
	var err error
	c.Durability, err = durability(ctx, cfg, monitor)
	return c, err
}

// places names the stream and the buckets of a model.
func places(model string) (stream string, buckets []string) {
	token := messages.Token(model)
	return "REFIT_" + token, []string{"refit_lease_" + token, "refit_status_" + token}
}

// Write says what is there.
func (c *Created) Write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "model %s is ready: stream %s, buckets %s; %s storage, %d replica(s)\n%s\n",
		c.Model, c.Stream, names(c.Buckets), c.Storage, c.Replicas, c.Durability)
	return err
}

// Remove deletes a model's stream and buckets with all that is in them, once the operator has said yes.
func Remove(ctx context.Context, nc *nats.Conn, cfg messages.Config, yes bool, out io.Writer) error {
	stream, buckets := places(cfg.Model)
	what := fmt.Sprintf("stream %s and buckets %s: every version, lease and status of model %s", stream, names(buckets), cfg.Model)
	if !yes {
		return cli.WithCode(cli.ExitUsage, fmt.Errorf("nothing was removed; --yes removes %s", what))
	}
	if err := messages.Remove(ctx, nc, cfg); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "removed %s\n", what)
	return err
}
