// Oracle judges the planner by truth that it did not make: golden cases of real torch, captures of real
// engine loaders, shard tables of real trainers. It plans each case, performs the plan in memory, and
// compares bytes.
//
// Usage:
//
//	go run ./internal/oracle plan|casts|captures|layouts FILE…
//	go run ./internal/oracle bench-plan [CAPTURE]
//
// Exit codes: 0 all right; 1 something was wrong or refused needlessly; 2 bad usage or unreadable input.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// errJudged means that the run worked and the verdict is bad; it has been printed.
var errJudged = errors.New("the planner is wrong")

func main() {
	switch err := run(os.Args[1:], os.Stdout); {
	case errors.Is(err, errJudged):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(2)
	}
}

// run does what the arguments say. errJudged means that it worked and something was wrong.
func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("usage: oracle plan|casts|captures|layouts FILE… | bench-plan [CAPTURE]")
	}
	if args[0] == "bench-plan" {
		return benchPlan(args[1:], out)
	}
	judges := map[string]func(name string, raw []byte, out io.Writer) (bool, error){
		"plan": judgePlan, "casts": judgeCasts, "captures": judgeCapture, "layouts": judgeLayout,
	}
	judge, ok := judges[args[0]]
	if !ok {
		return fmt.Errorf("no such command %q", args[0])
	}
	if len(args) == 1 {
		return fmt.Errorf("%s: no files", args[0])
	}
	all := true
	for _, name := range args[1:] {
		raw, err := readFile(name)
		if err != nil {
			return err
		}
		good, err := judge(name, raw, out)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = all && good
	}
	if !all {
		return errJudged
	}
	return nil
}

// readFile returns a file's bytes, decompressed if it is gzipped.
func readFile(name string) ([]byte, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if len(raw) < 2 || raw[0] != 0x1f || raw[1] != 0x8b {
		return raw, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	raw, err = io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return raw, nil
}

// decode refuses a file of another schema.
func decode(raw []byte, schema string, into any) error {
	var s struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	if s.Schema != schema {
		return fmt.Errorf("schema %q, expected %q", s.Schema, schema)
	}
	return json.Unmarshal(raw, into)
}
