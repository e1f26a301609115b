package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/doctor"
	"github.com/drydock-rl/drydock/internal/operator"
	"github.com/drydock-rl/drydock/internal/wiring"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/rdma/nixl"
)

// doctorCommand examines this host.
type doctorCommand struct {
	Listen  string `help:"Address that a publisher would serve tcp reads on." default:":0" placeholder:"ADDR"`
	NixlLib string `name:"nixl-lib" help:"libnixl_capi.so. Default: the loader's path, then installed Python wheels." placeholder:"FILE"`
	JSON    bool   `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (doctorCommand) Help() string {
	return `Kernel, memory, shared memory, limits, huge pages, the transports by reading a page through each, RDMA devices, NIXL, clock.
Each finding that isn't good says what to do. Exit code 3 if something that is always needed doesn't work.

Examples:

    refitctl doctor
    refitctl doctor --listen 10.0.0.7:7400 --json | jq '.findings[] | select(.status != "ok")'`
}

// Run examines.
func (c *doctorCommand) Run(ctx context.Context, out io.Writer) error {
	d := operator.Diagnose(ctx, doctor.Options{Listen: c.Listen, Costs: wiring.CostsFile(), Nixl: nixl.Config{Library: c.NixlLib}})
	if err := operator.Show(out, d, c.JSON); err != nil {
		return err
	}
	return d.Err()
}

// traceCommand draws a version's trace.
type traceCommand struct {
	anyModel
	Version   string   `arg:"" help:"V, RUN.V or latest."`
	Dir       []string `help:"Folder of trace files, the --trace-dir of publishers and receivers; several for several hosts. No server is asked." placeholder:"DIR"`
	Collector string   `help:"HTTP address of the collector that keeps the spans. Needs --model." placeholder:"URL"`
}

// Help gives examples.
func (traceCommand) Help() string {
	return `Processes that were started with --trace-dir keep what they recorded in files. The tree is drawn over all files of all
folders, so those of other hosts are copied beside and named too. No message server and no collector is needed.

The collector is the small one that refitctl demo runs; demo --keep prints its address.

Examples:

    refitctl trace latest --dir /var/lib/drydock/traces
    refitctl trace 3.42 --dir traces/host-a --dir traces/host-b
    refitctl trace latest --model demo --nats nats://127.0.0.1:4222 --collector http://127.0.0.1:40001`
}

// Run draws.
func (c *traceCommand) Run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	switch {
	case len(c.Dir) > 0 && c.Collector != "":
		return cli.WithCode(cli.ExitUsage, errors.New("--dir and --collector: expected one of them"))
	case len(c.Dir) > 0:
		return operator.DrawFiles(c.Dir, c.Model, c.Version, out)
	case c.Collector == "" || c.Model == "":
		return cli.WithCode(cli.ExitUsage, errors.New("expected --dir, or --collector and --model (publisher and receiver --trace-dir write the folder; demo --keep names its collector)"))
	}
	m := model(c.anyModel)
	return m.opened(ctx, log, func(control *messages.Control) error {
		k, err := operator.FindKey(ctx, control, c.Version)
		if err != nil {
			return err
		}
		id, err := operator.TraceID(ctx, control, k)
		if err != nil {
			return err
		}
		return operator.DrawTrace(ctx, c.Collector, id, out)
	})
}

// versionCommand tells what this program is.
type versionCommand struct {
	JSON bool `name:"json" help:"Write JSON."`
}

// Help gives examples.
func (versionCommand) Help() string {
	return `Examples:

    refitctl version --json`
}

// Run tells.
func (c *versionCommand) Run(out io.Writer) error {
	return operator.Show(out, operator.ThisBuild(), c.JSON)
}
