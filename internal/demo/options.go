package demo

import (
	"fmt"
	"io"
	"time"
)

// Options say what to run. cmd/refitctl has a flag for each.
type Options struct {
	Checkpoint string // folder; "": one is generated
	Capture    string // file; "": one is made from the checkpoint
	Layout     string // how trainers share tensors
	Trainers   int
	Receivers  int // tensor-parallel size
	Versions   int
	Transport  string
	Seed       uint64
	NATS       string // URL of a running server; "": an embedded one
	OTLP       string // address that gets all traces too
	ArenaDir   string // in which the demo makes a folder of its own
	BinDir     string // of the programs; "": where this one is
	Timeout    time.Duration
	Keep       bool // leave everything running until the context ends, and leave the files
	JSON       bool
	Progress   io.Writer // told of each event; nil: the report's writer
}

func (o *Options) progress(out io.Writer) io.Writer {
	if o.Progress != nil {
		return o.Progress
	}
	return out
}

func (o *Options) validate() error {
	if o.Trainers < 1 || o.Trainers > 256 || o.Receivers < 1 || o.Receivers > 64 || o.Versions < 1 {
		return fmt.Errorf("%d trainers, %d receivers, %d versions: expected 1 to 256, 1 to 64, at least 1", o.Trainers, o.Receivers, o.Versions)
	}
	return nil
}
