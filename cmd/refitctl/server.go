package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/operator"
	"github.com/drydock-rl/drydock/internal/wiring"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// model is how a command reaches the servers, and which model it asks about.
type model struct {
	wiring.NATS `group:"Message server:"`

	Model   string        `help:"Model name, as publishers and receivers know it." required:"" placeholder:"NAME"`
	Timeout time.Duration `help:"Longest wait for an answer of the servers." default:"10s"`
}

// anyModel is model where it may be left out.
type anyModel struct {
	wiring.NATS `group:"Message server:"`

	Model   string        `help:"Model name, as publishers and receivers know it." placeholder:"NAME"`
	Timeout time.Duration `help:"Longest wait for an answer of the servers." default:"10s"`
}

// operatorWait is the default of --nats-wait here: long enough for a server that restarts, and for somebody who has
// mistyped its address not to wonder.
const operatorWait = 3 * time.Second

// connected runs do with a connection.
func (m *model) connected(ctx context.Context, log *slog.Logger, do func(*nats.Conn) error) error {
	if m.Timeout < time.Second {
		return cli.WithCode(cli.ExitUsage, fmt.Errorf("--timeout %v: expected at least 1s", m.Timeout))
	}
	if m.NATSWait == 0 {
		m.NATSWait = operatorWait
	}
	nc, err := m.Connect(ctx, "refitctl", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	return operator.Coded(do(nc))
}

// opened runs do with the model's control plane.
func (m *model) opened(ctx context.Context, log *slog.Logger, do func(*messages.Control) error) error {
	return m.connected(ctx, log, func(nc *nats.Conn) error {
		c, err := messages.Open(ctx, nc, messages.Config{Model: m.Model, Deadline: m.Timeout, Logger: log})
		if err != nil {
			return err
		}
		return errors.Join(do(c), c.Close())
	})
}

// initCommand creates a model.
type initCommand struct {
	model
	Replicas int           `help:"Copies that the servers of a cluster keep: ${enum}." default:"1" enum:"1,3,5"`
	MaxBytes operator.Size `help:"Bound of the stream, such as 2GiB. Default: 2GiB, with --memory 256MiB." default:"0" placeholder:"SIZE"`
	MaxAge   time.Duration `help:"How long tables are kept of versions that nobody commits." default:"168h"`
	Memory   bool          `help:"Keep everything in the servers' memory: for trials, since a restart loses it."`
	Monitor  string        `help:"Monitoring address of a server, to look whether it syncs every write before it acknowledges it." placeholder:"http://HOST:8222"`
	JSON     bool          `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (initCommand) Help() string {
	return `What exists already as wanted is left alone, so init may be repeated. What exists with other settings is never
changed: each difference is shown, and the exit code is 3.

A single replica is as durable as its server's disk: by default nats-server syncs every two minutes, and a power cut
loses versions that were acknowledged. A client can't see that setting; the server's monitoring pages show it (--monitor).

Examples:

    refitctl init --model qwen3-30b
    refitctl init --model qwen3-30b --nats nats://a:4222,nats://b:4222,nats://c:4222 --replicas 3 --max-bytes 8GiB`
}

// Run creates the stream and the buckets.
func (c *initCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	if c.MaxBytes != 0 && c.MaxBytes < messages.MaxPayload {
		return cli.WithCode(cli.ExitUsage, fmt.Errorf("--max-bytes %d: expected at least %d", c.MaxBytes, messages.MaxPayload))
	}
	return c.connected(ctx, log, func(nc *nats.Conn) error {
		created, err := operator.Init(ctx, nc, messages.Config{
			Model: c.Model, Replicas: c.Replicas, MaxBytes: int64(c.MaxBytes), MaxAge: c.MaxAge, Memory: c.Memory, Deadline: c.Timeout, Logger: log,
		}, c.Monitor)
		if err != nil {
			return err
		}
		return operator.Show(out, created, c.JSON)
	})
}

// removeCommand deletes a model.
type removeCommand struct {
	model
	Yes bool `help:"Really delete; without it nothing is changed." env:"-"`
}

// Help gives examples.
func (removeCommand) Help() string {
	return `Publishers and receivers that still run fail from then on. Arenas are left as they are, so engines go on serving.

Examples:

    refitctl remove --model trial --yes`
}

// Run deletes the stream and the buckets.
func (c *removeCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	return c.connected(ctx, log, func(nc *nats.Conn) error {
		return operator.Remove(ctx, nc, messages.Config{Model: c.Model, Deadline: c.Timeout, Logger: log}, c.Yes, out)
	})
}

// natsConfigCommand generates permissions.
type natsConfigCommand struct {
	Model     string   `help:"Model name, as publishers and receivers know it." required:"" placeholder:"NAME"`
	World     int      `help:"Number of trainer ranks." required:""`
	Receivers []string `help:"Names of the receivers, as in their --name; NAME@ENGINE where it has an --engine-group." placeholder:"NAME"`
	Keys      string   `help:"Folder of nkeys: <user>.nk holds a seed and is made where missing; a <user>.pub with a public key is taken instead." required:"" placeholder:"DIR"`
	JWT       bool     `name:"jwt" help:"For a server in operator mode: write its operator and account, and <user>.creds beside the keys."`
}

// Help gives examples.
func (natsConfigCommand) Help() string {
	return `Writes the accounts block for nats-server: each rank, receiver and operator may do what the protocol needs of it, and nothing
else. Users are publisher-<rank>, each receiver's name, and operator. Hand each its seed (--nats-nkey) and its own inbox
(--nats-inbox-prefix _INBOX_<user>). An operator may not remove a model: that is for the account's administrator.

With --jwt the same permissions become JWTs: the output is the operator's block with the account's JWT, and each user
gets <user>.creds (--nats-creds), or <user>.jwt where it keeps its seed to itself (<user>.pub). The keys that sign lie
beside them as nats.operator.nk, nats.account.nk and nats.system.nk: move them to where you keep such keys. An account
that you have already takes the users' JWTs when its seed is put there as nats.account.nk; its own JWT is then yours to
keep.

Examples:

    refitctl nats-config --model qwen3-30b --world 16 --receivers rollout-0,rollout-1 --keys ./keys > drydock.conf
    refitctl nats-config --model qwen3-30b --world 16 --receivers rollout-0 --keys ./keys --jwt > operator.conf`
}

// Run writes the block; the seed files that were made are named on the log.
func (c *natsConfigCommand) Run(log *slog.Logger, out io.Writer) error {
	made, err := operator.NATSConfig(operator.Users{Model: c.Model, World: c.World, Receivers: c.Receivers, Keys: c.Keys, JWT: c.JWT}, out)
	if len(made) > 0 {
		log.Info("made seeds and credentials: keep them secret", "count", len(made), "folder", c.Keys)
	}
	return err
}
