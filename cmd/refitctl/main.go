// Refitctl is the operator's tool.
//
// Exit codes: see package internal/cli. What the commands do is in internal/operator and internal/demo; here are
// their flags.
package main

import (
	"os"

	"github.com/drydock-rl/drydock/internal/cli"
)

// config holds the commands.
type config struct {
	cli.Common

	Demo  demoCommand  `cmd:"" help:"Run the main job on this machine: trainers, receivers, three versions, and a proof of every byte."`
	Bench benchCommand `cmd:"" help:"Measure this machine: tables, plan, transports beside a plain copy and a raw connection, and a refit by stage."`

	Init   initCommand   `cmd:"" help:"Create a model's stream and buckets."`
	Remove removeCommand `cmd:"" help:"Delete a model's stream and buckets, with every version in them."`

	NatsConfig natsConfigCommand `cmd:"" name:"nats-config" help:"Write nats-server users for a model: each may do what the protocol needs of it, and nothing else."`

	Versions   versionsCommand   `cmd:"" help:"List a model's versions: which is newest, who serves, stages and reads them."`
	Receivers  receiversCommand  `cmd:"" help:"List a model's receivers: what each serves, stages and failed at."`
	Publishers publishersCommand `cmd:"" help:"List a model's publishers: what each buffer holds, and for whom."`
	Watch      watchCommand      `cmd:"" help:"Follow what happens to a model, until Ctrl-C."`
	Why        whyCommand        `cmd:"" help:"Explain a version: what it waits for, who holds it, what each receiver says."`
	Rollback   rollbackCommand   `cmd:"" help:"Order all receivers to serve an older version, until a newer one is committed."`

	Checkpoint checkpointCommand `cmd:"" help:"Generate the demo's checkpoint, and a capture of it."`
	Capture    captureCommand    `cmd:"" help:"Make the default capture of a checkpoint: what each destination rank needs."`

	Plan   planCommand   `cmd:"" help:"Plan a refit without moving a byte, and explain it."`
	Arenas arenasCommand `cmd:"" help:"List this host's arenas: what each holds, whether it serves, who reads it."`
	Trace  traceCommand  `cmd:"" help:"Draw a version's trace as a tree across processes."`
	Doctor doctorCommand `cmd:"" help:"Examine this host: what works, what doesn't, and what to do."`

	Health healthCommand `cmd:"" help:"Ask a publisher or receiver whether it is well; for health checks of containers."`

	Version versionCommand `cmd:"" help:"Tell what this program is."`
}

const about = "The operator's tool of Drydock. Every flag can also be set by DRYDOCK_<FLAG> and in the file of --config."

func main() {
	os.Exit(cli.Main("refitctl", about, &config{}))
}
