// Receiver stages each newest committed version into its arenas and applies it.
//
// Exit codes: see package internal/cli. SIGTERM in the middle of a stage leaves the old version in place.
package main

import (
	"os"

	"github.com/drydock-rl/drydock/internal/cli"
)

func main() {
	os.Exit(cli.Main("receiver", "Stages each newest committed version of a model on this host and applies it.", &config{}))
}
