package operator

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/internal/tracesink"
	"github.com/drydock-rl/drydock/pkg/messages"
	"github.com/drydock-rl/drydock/pkg/tracing"
)

// TraceID finds the trace of a version: by computation for the newest run, since the run's record is what it follows
// from, and for an older run by what its commit carries.
func TraceID(ctx context.Context, c *messages.Control, k messages.Key) (tracesink.TraceID, error) {
	run, ok, err := c.Run(ctx)
	if err != nil {
		return tracesink.TraceID{}, fmt.Errorf("find the trace of version %s: %w", k, err)
	}
	if ok && run.Run == k.Run {
		return tracesink.TraceID(tracing.VersionContext(run.Nonce, k.Version).TraceID()), nil
	}
	list, err := c.Versions(ctx)
	if err != nil {
		return tracesink.TraceID{}, fmt.Errorf("find the trace of version %s: %w", k, err)
	}
	i := slices.IndexFunc(list, func(v messages.Committed) bool { return v.Key == k })
	if i < 0 {
		return tracesink.TraceID{}, fmt.Errorf("find the trace of version %s: its run is not the newest, and its commit is gone", k)
	}
	// traceparent: version-trace-parent-flags
	parts := strings.Split(list[i].Headers["traceparent"], "-")
	if len(parts) != 4 {
		return tracesink.TraceID{}, fmt.Errorf("find the trace of version %s: its commit carries none", k)
	}
	return tracesink.ParseTraceID(parts[1])
}

// FindTrace finds the trace of a version in what processes have kept in files, without asking any server. model may be
// left out where the files know only one; of several runs the newest counts, unless the version names one.
func FindTrace(f *tracesink.Folder, model, version string) (tracesink.VersionTrace, error) {
	all := f.Versions()
	if model != "" {
		all = slices.DeleteFunc(all, func(v tracesink.VersionTrace) bool { return v.Model != model })
	}
	wanted, err := versionNamed(version)
	if err != nil {
		return tracesink.VersionTrace{}, cli.WithCode(cli.ExitUsage, err)
	}
	found, models := tracesink.VersionTrace{}, map[string]bool{}
	for _, v := range all { // by run and version: the last one that fits is the newest
		if wanted(v) {
			found, models[v.Model] = v, true
		}
	}
	switch {
	case len(models) > 1:
		names := slices.Sorted(maps.Keys(models))
		return found, cli.WithCode(cli.ExitUsage, fmt.Errorf("find the trace of version %s: there are versions of %s; say --model", version, strings.Join(names, " and ")))
	case len(models) == 0:
		return found, cli.WithCode(cli.ExitInput, fmt.Errorf("find the trace of version %s: none of the %d traces that are there is of it (%d lines can't be read)", version, len(all), f.Torn))
	}
	return found, nil
}

// versionNamed is FindKey for traces: RUN.V, V of any run, or "latest".
func versionNamed(text string) (func(tracesink.VersionTrace) bool, error) {
	if text == Latest {
		return func(tracesink.VersionTrace) bool { return true }, nil
	}
	if strings.Contains(text, ".") {
		k, err := messages.ParseKey(text)
		return func(v tracesink.VersionTrace) bool { return uint64(v.Run) == k.Run && uint64(v.Version) == k.Version }, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		err = fmt.Errorf("%q is no version: expected V, RUN.V or %s", text, Latest)
	}
	return func(v tracesink.VersionTrace) bool { return v.Version == n }, err
}

// DrawTrace reads a trace from a collector and draws it as a tree across processes.
func DrawTrace(ctx context.Context, collector string, id tracesink.TraceID, out io.Writer) error {
	t, err := tracesink.Fetch(ctx, collector, id)
	if err != nil {
		return cli.WithCode(cli.ExitUnavailable, fmt.Errorf("%w (the collector is that of refitctl demo --keep, which prints its address; Jaeger and others have a page for the trace)", err))
	}
	return t.Draw(out, tracesink.DrawOptions{})
}

// DrawFiles draws the trace of a version out of folders of trace files.
func DrawFiles(dirs []string, model, version string, out io.Writer) error {
	f, err := tracesink.ReadFolders(dirs...)
	if err != nil {
		return cli.WithCode(cli.ExitInput, err)
	}
	found, err := FindTrace(f, model, version)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, run %d, version %d\n", found.Model, found.Run, found.Version)
	if f.Torn > 0 {
		fmt.Fprintf(out, "(%d lines of the files can't be read: a process was killed, or is writing just now)\n", f.Torn)
	}
	t := f.Trace(found.ID)
	return t.Draw(out, tracesink.DrawOptions{})
}
