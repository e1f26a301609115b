package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// maxConfigBytes bounds a configuration file; ours have some twenty lines.
const maxConfigBytes = 1 << 20

// file resolves flags from a flat YAML mapping of flag names to values.
type file struct {
	path   string
	values map[string]any
}

// loadFile reads a configuration file for kong.
func loadFile(r io.Reader) (kong.Resolver, error) {
	f := file{path: "given"}
	if named, ok := r.(interface{ Name() string }); ok {
		f.path = named.Name()
	}
	err := yaml.NewDecoder(io.LimitReader(r, maxConfigBytes)).Decode(&f.values)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read configuration file %s: expected a mapping of flag names to values: %w", f.path, err)
	}
	return f, nil
}

// Validate refuses keys that no flag has: a misspelt key must not fall silently back to a default.
func (f file) Validate(app *kong.Application) error {
	known := flagNames(app.Node)
	for key := range f.values {
		if !slices.Contains(known, key) {
			return fmt.Errorf("configuration file %s: unknown key %q; known are %s", f.path, key, strings.Join(known, ", "))
		}
	}
	return nil
}

// Resolve returns the file's value for a flag, unless the environment sets it.
func (f file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	return f.values[flag.Name], nil
}

// flagNames lists the flags of a command and of all below it, sorted.
func flagNames(n *kong.Node) []string {
	var names []string
	for _, f := range n.Flags {
		names = append(names, f.Name)
	}
	for _, c := range n.Children {
		names = append(names, flagNames(c)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
