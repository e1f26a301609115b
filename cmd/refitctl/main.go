// Refitctl is the operator's tool.
//
// Exit codes: see package internal/cli.
package main

import (
	"os"

	"github.com/drydock-rl/drydock/internal/cli"
)

// config holds the commands.
type config struct {
	cli.Common

	Demo demoCommand `cmd:"" help:"Run the main job on this machine: trainers, receivers, three versions, and a proof of every byte."`
}

func main() {
	os.Exit(cli.Main("refitctl", "The operator's tool of Drydock.", &config{}))
}
