package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/drydock-rl/drydock/pkg/rdma"
)

// file names a file of the publisher's process.
type file struct {
	FD  int32 // -1: none, anonymous memory
	Dev uint64
	Ino uint64
}

// access is the decoded metadata. On the wire all fields are little-endian and of fixed width.
type access struct {
	PID     uint32
	Start   uint64 // of the process, clock ticks since boot
	PidNS   uint64 // inode of the pid namespace in which PID counts
	Control file
	Regions []regionAccess
}

type regionAccess struct {
	File   file
	Base   uint64
	Nbytes int64
}

const (
	accessVersion = 1
	maxRegions    = 32 << 10
)

func (a *access) encode() []byte {
	var b bytes.Buffer
	for _, v := range []any{uint8(accessVersion), a.PID, a.Start, a.PidNS, a.Control, uint32(len(a.Regions)), a.Regions} {
		_ = binary.Write(&b, binary.LittleEndian, v) // fixed-size values into memory: never fails
	}
	return b.Bytes()
}

func decodeAccess(b []byte) (access, error) {
	var a access
	var version uint8
	var n uint32
	r := bytes.NewReader(b)
	for _, v := range []any{&version, &a.PID, &a.Start, &a.PidNS, &a.Control, &n} {
		if err := binary.Read(r, binary.LittleEndian, v); err != nil {
			return a, err
		}
	}
	switch {
	case version != accessVersion:
		return a, fmt.Errorf("access of version %d, this is %d", version, accessVersion)
	case n > maxRegions:
		return a, fmt.Errorf("%d regions, at most %d", n, maxRegions)
	case r.Len() != int(n)*binary.Size(regionAccess{}):
		return a, fmt.Errorf("%d bytes for %d regions", r.Len(), n)
	}
	a.Regions = make([]regionAccess, n)
	return a, binary.Read(r, binary.LittleEndian, a.Regions)
}

// startTime is when a process began, in clock ticks since boot: with its id it names one process for ever.
func startTime(pid uint32) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name is in parentheses, and may hold spaces and more of them.
	i := bytes.LastIndexByte(b, ')')
	fields := bytes.Fields(b[i+1:])
	const field = 22 - 3 // the fields behind the name begin with the third
	if i < 0 || len(fields) <= field {
		return 0, fmt.Errorf("parse /proc/%d/stat: %d fields", pid, len(fields))
	}
	return strconv.ParseUint(string(fields[field]), 10, 64)
}

func pidNamespace() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return 0, fmt.Errorf("stat the pid namespace: %w", err)
	}
	return st.Ino, nil
}

var errOtherFile = errors.New("another file is behind the descriptor")

// open opens a file of another process for reading, and makes sure that it is the one meant.
func (f *file) open(pid uint32) (int, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, f.FD)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	if st.Dev != f.Dev || st.Ino != f.Ino || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, errors.Join(fmt.Errorf("%s: %w", path, errOtherFile), unix.Close(fd))
	}
	return fd, nil
}

// openError says what a failed open of a process's file means.
func openError(err error) rdma.Kind {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return rdma.ErrUnavailable
	case errors.Is(err, unix.ESRCH):
		return rdma.ErrUnreachable
	default:
		return rdma.ErrStale
	}
}
