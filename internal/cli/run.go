package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Common is embedded in every program's configuration.
type Common struct {
	Config    kong.ConfigFlag `help:"YAML file of settings: flag names without the dashes, and their values." placeholder:"FILE" group:"Program:"`
	LogLevel  slog.Level      `help:"Least severe log records to write: debug, info, warn or error." default:"info" group:"Program:"`
	LogFormat string          `help:"Log format on standard error: text or json." default:"text" enum:"text,json" group:"Program:"`
}

// Version is embedded beside Common by programs that have no command for it, and no other flag of that name.
type Version struct {
	ShowVersion kong.VersionFlag `name:"version" env:"-" help:"Tell what this program is, and end." group:"Program:"`
}

// Logger builds the program's logger, which writes to w.
func (c *Common) Logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// logging is what Run needs of a configuration; embedding Common gives it.
type logging interface {
	Logger(w io.Writer) *slog.Logger
}

// Main runs the program over the process's own arguments and streams, and returns its exit code.
// config is a pointer to a kong structure that embeds Common; it, or the command that the arguments select, has a method
// Run(ctx context.Context, log *slog.Logger, out io.Writer) error. The context ends at SIGINT or SIGTERM.
func Main(name, about string, config logging) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, name, about, config, os.Args[1:], os.Stdout, os.Stderr)
}

// Run is Main with everything passed in.
func Run(ctx context.Context, name, about string, config logging, args []string, stdout, stderr io.Writer) int {
	err := run(ctx, name, about, config, args, stdout, stderr)
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(stderr, "%s: %s\n", name, oneLine(err))
	}
	return Code(err)
}

// oneLine writes an error, which may be several joined, as one line.
func oneLine(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	text := strings.Join(parts, "; ")
	return strings.ReplaceAll(text, ":; ", ": ")
}

// helpWithDefault is a flag's help. Where a placeholder such as FILE stands in the place of the default, as kong writes
// it, and the text doesn't tell the default itself, it is told at the end.
func helpWithDefault(v *kong.Value) string {
	hidden := v.Flag != nil && v.Flag.PlaceHolder != "" && v.HasDefault && !strings.Contains(strings.ToLower(v.Help), "default")
	if !hidden {
		return kong.DefaultHelpValueFormatter(v)
	}
	told := *v
	told.Help += " Default: " + v.Default + "."
	return kong.DefaultHelpValueFormatter(&told)
}

// build tells in a line which build of a program this is. refitctl version has more.
func build(name string) string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("%s %s, %s", name, version, runtime.Version())
}

// helped ends parsing after --help has been printed.
type helped struct{}

func run(ctx context.Context, name, about string, config logging, args []string, stdout, stderr io.Writer) (err error) {
	defer func() {
		switch r := recover(); r.(type) {
		case nil:
		case helped:
			err = nil
		default:
			panic(r)
		}
	}()
	parser, err := kong.New(config,
		kong.Name(name), kong.Description(about), kong.UsageOnError(),
		kong.Writers(stdout, stderr), kong.DefaultEnvars("DRYDOCK"), kong.Configuration(loadFile),
		kong.Exit(func(int) { panic(helped{}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}), kong.ValueFormatter(helpWithDefault),
		kong.Vars{"version": build(name)},
	)
	if err != nil {
		return fmt.Errorf("build the command line: %w", err)
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		return WithCode(ExitUsage, fmt.Errorf("%w (try --help)", err))
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	kctx.BindTo(stdout, (*io.Writer)(nil))
	kctx.Bind(config.Logger(stderr))
	return kctx.Run()
}
