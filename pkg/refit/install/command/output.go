package command

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drydock-rl/drydock/pkg/refit"
)

// output keeps the end of what a program writes, and the lines in which it reports what it measured. However much is
// written, it holds little more than tailBytes of it.
type output struct {
	end  []byte // the last bytes, at most twice tailBytes
	line []byte // the line under way; a line that is too long for a report is cut
	seen refit.Report
}

// maxLine is the longest line that may be a report, in bytes.
const maxLine = 128

// Write takes output in. It is called by one goroutine at a time.
func (o *output) Write(b []byte) (int, error) {
	for _, c := range b {
		if c == '\n' {
			o.read(string(o.line))
			o.line = o.line[:0]
		} else if len(o.line) < maxLine {
			o.line = append(o.line, c)
		}
	}
	o.end = append(o.end, b...)
	if extra := len(o.end) - tailBytes; extra > tailBytes {
		o.end = append(o.end[:0], o.end[extra:]...)
	}
	return len(b), nil
}

// read takes a report out of a line. What is not one is ordinary output.
func (o *output) read(line string) {
	name, text, _ := strings.Cut(strings.TrimSpace(line), "=")
	ms, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ms >= 0 && ms < 1e9) {
		return
	}
	d := time.Duration(ms * float64(time.Millisecond))
	switch name {
	case "DRYDOCK_PAUSE_MS":
		o.seen.Pause = d
	case "DRYDOCK_READY_MS":
		o.seen.Ready = d
	}
}

func (o *output) report() refit.Report {
	o.read(string(o.line))
	return o.seen
}

// tail is the end of the output as an error shows it; "" when there was none.
func (o *output) tail() string {
	b := o.end
	cut := ""
	if len(b) > tailBytes {
		b, cut = b[len(b)-tailBytes:], "…"
	}
	for len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return ""
	}
	return fmt.Sprintf("; its last words: %s%s", cut, strings.ToValidUTF8(string(b), "\ufffd"))
}
