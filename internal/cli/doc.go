// Package cli turns flags, environment and a configuration file into a program's configuration, and its error into
// an exit code. All three programs use it, so they agree on names, precedence, log format and codes.
//
// Each flag --some-name can also be set by DRYDOCK_SOME_NAME and by the key some-name of the YAML file given with
// --config. A flag wins over the environment, which wins over the file, which wins over the default.
//
// A program that fails says so in one line on standard error. It never prints a stack trace for an error that it
// knows how to name.
package cli
