package main

import (
	"context"
	"io"

	"github.com/drydock-rl/drydock/internal/bench"
)

// benchCommand has a flag for each of bench.Options.
type benchCommand struct {
	Bytes  int64  `help:"Bytes that the data plane's rows move." default:"268435456"`
	Rounds int    `help:"Rounds; the best counts." default:"3"`
	Dir    string `help:"Where arenas are made." default:"/dev/shm" placeholder:"DIR"`
}

// Run measures.
func (c *benchCommand) Run(ctx context.Context, out io.Writer) error {
	return bench.Run(ctx, out, bench.Options{Nbytes: c.Bytes, Rounds: c.Rounds, Dir: c.Dir})
}
