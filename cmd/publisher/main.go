// Publisher serves trainer ranks' memory and publishes versions of it: of trainers that ask it over a socket (publisher
// serve), or, as a stand-in for one, of a checkpoint's shards.
//
// Exit codes: see package internal/cli. SIGTERM withdraws what is served, waits for the readers, and leaves.
package main

import (
	"os"

	"github.com/drydock-rl/drydock/internal/cli"
)

func main() {
	os.Exit(cli.Main("publisher", "Serves trainer ranks' memory and publishes versions of it.", &config{}))
}
