package nixl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// The library and UCX write lines of their own to stderr. These are the forms that they begin with.
var noise = regexp.MustCompile(`^(?:([EWIF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] (.*)|\[\d+\.\d+\] \[[^\]]*\] +\S+ +UCX +(\S+) +(.*))$`)

// CaptureNoise puts a pipe in the place of stderr: lines of the library go to the logger, all others on to where stderr
// led before, and so does the trace of a crash. It is for programs, once, before the library is opened; restore undoes
// it. What is buffered in the pipe when the process is killed is lost.
func CaptureNoise(log *slog.Logger) (restore func() error, err error) {
	old, err := duplicate(unix.Stderr)
	if err != nil {
		return nil, fmt.Errorf("capture stderr: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture stderr: %w", err), old.Close())
	}
	if err = debug.SetCrashOutput(old, debug.CrashOptions{}); err == nil {
		err = unix.Dup3(int(w.Fd()), unix.Stderr, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture stderr: %w", err), old.Close(), r.Close(), w.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		sift(r, old, log)
	}()
	return func() error {
		err := unix.Dup3(int(old.Fd()), unix.Stderr, 0)
		err = errors.Join(err, debug.SetCrashOutput(nil, debug.CrashOptions{}), w.Close())
		<-done
		return errors.Join(err, r.Close(), old.Close())
	}, nil
}

func duplicate(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), "stderr"), nil
}

// sift reads lines to the end of the pipe. A line that is longer than the buffer is passed on in pieces.
func sift(from, rest *os.File, log *slog.Logger) {
	in := bufio.NewReaderSize(from, 16<<10)
	for {
		line, err := in.ReadSlice('\n')
		if m := noise.FindStringSubmatch(strings.TrimRight(string(line), "\r\n")); m != nil {
			log.LogAttrs(context.Background(), levelOf(m[1]+m[3]), m[2]+m[4], slog.String("transport", Name))
		} else if len(line) > 0 {
			_, _ = rest.Write(line) // there is nowhere to tell of a stderr that can't be written
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func levelOf(s string) slog.Level {
	switch s {
	case "E", "F", "ERROR", "FATAL":
		return slog.LevelError
	case "W", "WARN":
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}
