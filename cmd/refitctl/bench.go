package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/drydock-rl/drydock/internal/bench"
	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/operator"
	"github.com/drydock-rl/drydock/internal/rdmabench"
	"github.com/drydock-rl/drydock/internal/wiring"
	"github.com/drydock-rl/drydock/pkg/rdma"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

// benchCommand measures this machine; without a command, everything but the transports' costs.
type benchCommand struct {
	All   benchAllCommand   `cmd:"" default:"withargs" help:"Measure tables, plan, transports and a refit."`
	Refit benchRefitCommand `cmd:"" help:"Measure whole refits by stage, with and without digests."`
	RDMA  benchRDMACommand  `cmd:"" name:"rdma" help:"Measure the transports side by side, and save what each costs where receivers look for it."`
}

// benchAllCommand has a flag for each of bench.Options.
type benchAllCommand struct {
	Bytes  int64  `help:"Bytes that the data plane's rows move." default:"268435456"`
	Rounds int    `help:"Rounds; the best counts." default:"3"`
	Dir    string `help:"Where arenas are made." default:"/dev/shm" placeholder:"DIR"`
}

// Run measures.
func (c *benchAllCommand) Run(ctx context.Context, out io.Writer) error {
	return bench.Run(ctx, out, bench.Options{Nbytes: c.Bytes, Rounds: c.Rounds, Dir: c.Dir})
}

// benchRefitCommand has a flag for each of bench.RefitOptions.
type benchRefitCommand struct {
	Bytes  int64  `help:"Bytes of the model. Twice as much is needed where arenas are made, and once in memory." default:"1073741824"`
	Rounds int    `help:"Refits of each kind in one turn." default:"5"`
	Turns  int    `help:"How often all kinds are measured, one after the other." default:"3"`
	Dir    string `help:"Where arenas are made." default:"/dev/shm" placeholder:"DIR"`
}

// Help says how to read the table, and gives examples.
func (benchRefitCommand) Help() string {
	return `Refits by local and by tcp over loopback, from two trainers in this process, each with and without the publisher's digests. Stages overlap, so
their times don't add up to the whole; what verification costs is the difference of the two columns. On a machine that others use only the
shares of one run mean something.

Examples:

    refitctl bench refit
    refitctl bench refit --bytes 67108864 --turns 1 --dir /tmp`
}

// Run measures.
func (c *benchRefitCommand) Run(ctx context.Context, out io.Writer) error {
	return bench.Refit(ctx, out, bench.RefitOptions{Nbytes: c.Bytes, Rounds: c.Rounds, Turns: c.Turns, Dir: c.Dir})
}

// benchRDMACommand has a flag for each of rdmabench.Options.
type benchRDMACommand struct {
	Bytes      int64    `help:"Bytes of a large read." default:"134217728"`
	Times      int      `help:"Reads of each kind; the fastest counts." default:"5"`
	Sources    []int    `help:"Numbers of sources that share a read." default:"1,4,16"`
	Transports []string `help:"Of local, vmread, tcp, tls, nixl. Default: all that work here." placeholder:"NAME"`
	NixlLib    string   `name:"nixl-lib" help:"libnixl_capi.so. Default: the loader's path, then installed Python wheels." placeholder:"FILE"`
	Save       string   `help:"Where to save the costs. Default: where receivers of this user look for them." placeholder:"FILE"`
	NoSave     bool     `help:"Don't save the costs."`
	JSON       bool     `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (benchRDMACommand) Help() string {
	return `Each transport beside a plain copy of the same bytes on all cores and a raw copy over loopback connections, with and without digests, and what a run
(α) and a byte (β) cost. On a machine that others use compare the shares of one run, not the speeds of two.

Receivers on this host plan with the costs that are saved; --costs names another file. Measure while the host is idle: costs of a busy one mislead them.

Examples:

    refitctl bench rdma
    refitctl bench rdma --transports tcp,local --bytes 33554432 --no-save --json | jq .costs`
}

// Run measures and saves.
func (c *benchRDMACommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	rep, err := rdmabench.Run(ctx, rdmabench.Options{
		Transports: c.Transports, Nbytes: c.Bytes, Sources: c.Sources, Times: c.Times,
		Nixl: nixl.Config{Library: c.NixlLib}, Logger: log,
		Progress: func(r rdmabench.Row) {
			log.Debug("measured", "transport", r.Transport, "shape", r.Shape, "GB/s", r.GBps())
		},
	})
	if err != nil {
		return cli.WithCode(cli.ExitUnavailable, err)
	}
	if err := operator.Show(out, rep, c.JSON); err != nil || c.NoSave {
		return err
	}
	path := c.Save
	if path == "" {
		path = wiring.CostsFile()
	}
	if err := rdma.SaveCosts(path, rep.Costs); err != nil {
		return cli.WithCode(cli.ExitCapacity, err)
	}
	if !c.JSON {
		fmt.Fprintf(out, "costs saved in %s\n", path)
	}
	return nil
}
