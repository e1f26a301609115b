package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadFile reads a file that was named by a flag, of at most limit bytes: one that never ends, as a device, must not take
// all memory. A pipe that somebody writes to is read to its end; one that nobody has opened is empty, and not waited for.
func ReadFile(path string, limit int64) (b []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.Size() > limit:
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), limit)
	case info.Mode()&os.ModeDevice != 0:
		return nil, fmt.Errorf("%s is a device, expected a file", path)
	}
	if b, err = io.ReadAll(io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes, which is the limit", path, limit)
	}
	return b, nil
}
