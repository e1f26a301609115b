// Publisher serves one trainer rank's shards of a checkpoint and publishes versions of them.
//
// Exit codes: see package internal/cli. SIGTERM withdraws what is served, waits for the readers, and leaves.
package main

import (
	"os"

	"github.com/drydock-rl/drydock/internal/cli"
)

func main() {
	os.Exit(cli.Main("publisher", "Serves one trainer rank's shards of a checkpoint and publishes versions of them.", &config{}))
}
