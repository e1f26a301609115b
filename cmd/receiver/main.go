// Receiver stages each newest committed version into its arenas and applies it.
//
// Exit codes: see package internal/cli. SIGTERM in the middle of a stage leaves the old version in place.
package main

import (
	"os"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == nixl.ProbeArg { // as a child of itself: see nixl.Config.Probe
		os.Exit(nixl.ProbeMain(os.Stdin, os.Stdout))
	}
	os.Exit(cli.Main("receiver", "Stages each newest committed version of a model on this host and applies it.", &config{}))
}
