package operator

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/cli"
)

// MakeCapture writes the default capture of a checkpoint for tp destination ranks to path: gzip where the name ends in
// .gz, "-" is out. It returns the notes on what could not be split.
func MakeCapture(dir string, tp int, path string, out io.Writer) (notes []string, err error) {
	if tp < 1 {
		return nil, cli.WithCode(cli.ExitUsage, fmt.Errorf("--tp %d: expected at least 1", tp))
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	capture, err := capturegen.Generate(c, tp)
	if err != nil {
		return nil, cli.WithCode(cli.ExitInput, fmt.Errorf("make a capture of %s: %w", dir, err))
	}
	var b bytes.Buffer
	if err := encode(capture, &b, strings.HasSuffix(path, ".gz")); err != nil {
		return nil, err
	}
	if path == "-" {
		_, err := b.WriteTo(out)
		return capture.Notes, err
	}
	return capture.Notes, writeError(WriteFile(path, b.Bytes()))
}

func encode(c *capturegen.Capture, w io.Writer, zip bool) error {
	if !zip {
		return c.Encode(w)
	}
	z := gzip.NewWriter(w)
	return errors.Join(c.Encode(z), z.Close())
}
